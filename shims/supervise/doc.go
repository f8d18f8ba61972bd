// Package supervise keeps a background run when chatd is not there. It is the mode "chatd-shim
// mind", one process for a run. Package plan has what it shares with chatd.
//
// # Theory of operation
//
// chatd starts the supervisor as root in the leaf of the run and gives it only descriptors
// ([plan.SupervisorFiles]): the pipes of the run, a file for each stream, a file for the end, the leaf's
// cgroup.kill, and a fifo. The supervisor starts nsenter, and as its parent learns how the command
// ends. It reports [plan.SupervisorReady], and changes to a uid that owns nothing, with no
// capability. Then chatd moves it to a cgroup of chatd's own and lets it go on. From here on neither
// the chat's limits nor cgroup.kill apply to it.
//
// It copies each pipe into its file ([stream.File]): the head and the tail of the stream, up to
// [plan.SupervisorSpec].OutputMax, and its length. The files are on the run directory, a tmpfs; they
// stop growing when that is nearly full. When the command has ended, or its time is over and chatd
// has not ended it, the supervisor writes to cgroup.kill, reads the rest of the pipes, writes
// [plan.SupervisorEnd], and exits. chatd reads the files at any time, also after a restart. It needs
// no answer from the supervisor, which has no socket.
//
// # What it does not stop
//
// The supervisor is a process of the host, which root can end. Its run then loses further output
// and ends as soon as it prints; how it ended is unknown ([chat.RunLost]). Until chatd has moved
// the supervisor, for some milliseconds, the OOM killer of the chat can end it, and with it the
// run. The pages that it touched until then, about two megabytes, count for the run. All
// supervisors have one uid, and no chat's limits bound them: copying takes the host's CPU time.
// None may be traced, and none runs code of a chat.
package supervise
