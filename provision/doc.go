// Package provision gives every conversation a Linux user of its own and takes
// it away again. It puts the mechanisms together: accounts, homes, cgroups, packet
// rules, the session and its terminal. Packages session, view and hostprobe put
// together those of one session.
//
// # Theory of operation
//
// A chat lives through a table of steps (steps.go), each of which can create something, say whether
// it has drifted, and remove it. Create reads the table forwards, reap backwards, reconcile both
// ways, and every step may be taken again. The record of a chat is durable before the first step
// and is deleted after the last removal, so that a crash at any point leaves something to finish
// from. Uids are never given twice.
//
// Asleep, a chat is an account, a 0700 home and two temporary directories. It has no process, no
// cgroup and no packet rule of its own. Rules belong to blocks of 65,536 uids that a profile owns,
// and stand before the first of those uids has an account.
//
// Awake, it is one tree of processes, all of the chat's uid, in a cgroup of its own:
//
//	bwrap                 pid 1 inside: the init process, held by pidfd
//	  └─ tmux             started through chatd-shim confine
//	       └─ bash        the chat
//
// Package session starts it with the chat's credentials, and returns when the shell is at its
// prompt; and then the CPU quota is set. The session is a session of its own in the sense of
// setsid(2) too, and outlives chatd. The data by which a later chatd finds it lies in
// <run>/sessions/<id>/session.json.
//
// Where systemd is PID 1 it starts the session instead, as chatd-<id>.service. The
// private /tmp is mounted by pam_namespace(8) then, and the unit outlives chatd by itself.
//
// A run enters the session from a fresh leaf of the chat's cgroup. When the
// command ends or times out, chatd kills the leaf, and with it every process that the
// command forked. The terminal is reached in the same way: a tmux client runs inside the
// session, never as root.
//
// A background run (background.go) has a supervisor between chatd and nsenter. The supervisor
// holds the run's pipes and records its end while chatd is down; see package background.
//
// The file tools (filecall.go) are "chatd-shim filetool"; package filecall does their calls, beside the
// chat's session, if there is one. chatd checks the requested name before it starts anything, and
// sends the tool its request and the rules; whoever called speaks with it from then on.
//
// A session ends by its cgroup. Removal has an order too: every process of the chat has
// ended before the first wall is removed (see asleepSteps).
//
// # Parts
//
// A [Manager] is a life, and the verbs: life takes chats through the table, and builds on sessions,
// which starts and ends them, and lets commands in. Verbs of runs and file tools are of runner, those
// of archives of archiver. All build on chats, which finds records, locks and sessions; a subject is
// what it found, with the profile in force then.
//
// # Who may ask
//
// The caller is in the context. A bridge reaches its own chats, and another's is
// not found for it; an operator reaches all. Every change is audited before and
// after; what cannot be audited is not done.
//
// # What it does not stop
//
// The kernel: an exploit of it crosses every wall here. Timing: chats share CPUs,
// caches and disks, and one can tell that others are busy. Disk space: a chat
// may fill the file system of its home (quotas are not here yet). What a chat
// may do to itself: it owns its home, its shell's startup files and its terminal,
// and can make its own session useless; reap and create again. What an operator
// exposes: unix sockets in it, and what chats that share it tell each other
// (specs/0006-the-view.md). And the operator:
// root is trusted with everything.
package provision
