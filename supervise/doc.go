// Package supervise keeps a background run when chatd is not there: it is the mode
// "chatd-shim mind", one process for a run, and what it shares with chatd.
//
// # Theory of operation
//
// chatd starts the minder as root in the leaf of the run and gives it descriptors only
// ([Spec]): the pipes of the run, a file for each stream, a file for the end, the leaf's
// cgroup.kill, and a fifo. The minder starts nsenter, so that it is its parent and hears how
// the command ends, says so, and becomes a uid that owns nothing, with no capability. Then
// chatd moves it out of the leaf, among its own, and lets it go on: from here on no limit of the
// chat meets it, and cgroup.kill does not.
//
// It copies each pipe into its file ([stream.File]): the head and the tail of the stream, as much
// as [Spec].OutputMax says, and how long it was. The files are on the run directory, a tmpfs; they
// grow no more when that is nearly full. When the command has ended, or the time is over and chatd
// did not see to it, it writes to cgroup.kill, reads what is left in the pipes, writes [End], and
// ends itself. chatd reads the files when it wants to, also after a restart: it needs no answer
// from the minder, which has no socket.
//
// # What it does not stop
//
// The minder is a process of the host: whoever is root there can end it. Its run then loses its
// output from there on and ends as soon as it prints; how it ended is not known ([chat.RunLost]).
// Until it is moved, for some milliseconds, a chat that is out of memory can take it along, and
// with it the run. The pages that it touched until then count for the run, about two megabytes. Two
// minders have one uid and are bounded by no chat's limits: what they copy is time of the host's.
// Neither may be traced, and neither runs anything of a chat.
package supervise
