// Package hostprobe tries which layers this host enforces. It takes no answer from config or from a
// version number. It makes what a chat has, as a chat that nobody has, and tries to get out.
//
// # Theory of operation
//
// A [Prober] acts as the chat [ID], which has no record, with the last uid of the range, which no
// chat gets. [Prober.Try] tries every wall once:
//
//	outside   an account (account), a home (homedir), limits (cgroup), packet rules (netpolicy)
//	inside    a session of each kind of network, whose program is chatd-shim probe: in its first
//	          process, and in a command that enters it; sockets of it (sockets)
//
// The sessions are like those of the profile default, with nothing opened. Their home and private
// trees lie where no chat can fill the file system. Mechanisms say what they found, package layers
// what follows. During the first probe, a session that does not come up is tried again without each
// layer that config excuses. The host may lack only that one.
//
// [Prober.ChooseAccount] tries which backend of accounts the host resolves. [MakeDir] makes a place
// to probe in, where no daemon answers.
//
// # Runs as
//
// root, in chatd-root; its sessions with the uid of probes. Each try removes them before it begins,
// too: a crash may have left one.
//
// # What it does not stop
//
// Anything. A try is one attack at one time. Another attack may succeed, and a wall may fall a
// moment later. A program of the host may answer a chat differently.
package hostprobe
