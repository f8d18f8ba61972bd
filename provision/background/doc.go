// Package background keeps the runs of chats: those under way, and the background runs that have
// ended and whose output is kept.
//
// # Theory of operation
//
// A [Run] is one command in a session, in a leaf of its own below the chat's cgroup. [Runs.Admit]
// registers it, within the bounds of its chat and of its owner, before any process of it starts.
// The reason for its end is recorded before the end ([Run.End], [Runs.SetEndReason]), so that its result
// can name it.
//
// A foreground run has a caller, which waits for it and has its streams; this package has only its
// entry. A background run goes on without its caller and without chatd. It has a directory
// DIR/CHAT/RUN on a tmpfs, which a reboot removes:
//
//	run.json        what a later chatd needs to find it
//	stdout, stderr  its output: a [stream.File] each
//	end             how its command ended: [plan.SupervisorEnd]
//	orders          a fifo, for the orders of chatd
//	stdin           a fifo, while standard input is open
//	result.json     how it ended, once chatd knows
//
// Its supervisor (package supervise) writes stdout, stderr and end. [Run.Start] makes the directory
// and starts the supervisor in the run's leaf, waits until nsenter runs, writes run.json, moves the
// supervisor out of the leaf and lets it go on. A chatd that is killed before run.json is written
// leaves a leaf that the next one kills, with the supervisor in it ([Runs.Adopt]).
//
// [Run.Watch] waits for the supervisor's end, or ends the run at its timeout, and reads how it
// ended; [Run.Keep] records that. [Runs.Adopt] finds the runs of an earlier chatd. It trusts
// run.json only where boot, start time and uid of the supervisor agree.
//
// The caller checks whose chat it is, and writes the audit log.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// The chat controls the output of a run: this package passes it by descriptor and never reads it. A
// supervisor that root ends leaves a run without an end ([chat.RunLost]). A process that sleeps in
// the kernel outlives the wait for its end, which is bounded. The bounds on kept output are sums of
// the runs' own bounds, and do not consider the free space of the file system.
package background
