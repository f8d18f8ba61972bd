// Package cgroup bounds a session and starts processes straight into it: memory, swap, number of
// tasks and CPU time of one chat, and the means to end everything that a chat runs, in one step.
//
// There are two backends. [FS] is cgroupfs ([OpenFS]), for hosts without systemd:
// chatd makes the cgroups itself, below the cgroup it runs in. [Units] is systemd
// ([OpenUnits]): each session is a transient service that PID 1 owns. The tree of
// a chat is the same below its first line:
//
//	<own>/chatd.front               the front, with a bound on memory and tasks; with systemd in
//	                                chatd.service, if it has Delegate=yes
//	<own>/chatd                     the base, mode 0700: its names and counters are nobody else's
//	<own>/chatd/<id>                all limits of the chat, and the sums of its usage
//	chatd.slice                     the same two with systemd; the slice is 0711, for the
//	chatd.slice/chatd-<id>.service  unit's first process has to pass
//	  session                       the terminal: bwrap, tmux, the shell
//	  runs/<run>                    one command; memory.oom.group = 1
//
// A run has a leaf of its own so that a hog takes its own run down and not the shell. No process is
// ever in an inner cgroup (the no-internal-process rule of cgroups(7)). Every process is born in
// its leaf by CLONE_INTO_CGROUP (clone(2)), so that there is no moment outside.
//
// # Two modes
//
// "cgroup v2": the kernel's cgroup2 tree has the controllers memory, pids and cpu.
//
// "cgroup v1 (legacy)": they are mounted as cgroup v1, and a cgroup2 tree without controllers
// stands beside them. That tree still gives CLONE_INTO_CGROUP, cgroup.kill and cgroup.events;
// limits are written to the files of v1. A child inherits the v1 cgroups of the thread that
// clones it. So Start lends one thread to the chat's memory and pids cgroups, clones from it and
// lets it die. The cpu cgroup is joined in the same way as long as the chat has no quota, which is
// when its session starts. Under a quota it is joined after the exec and before Start returns, by
// moving whoever is in the leaf until nobody is outside. A thread of the daemon must not be there
// then. Out of quota it would sleep for the rest of a period with the scheduler's locks held, and
// with it every other chat.
//
// A chat with a bound on block I/O stands in a fourth, blkio, from its birth; others do not
// join it.
//
// Under cgroup v2 the same danger is a child that is born out of quota: see
// startLifted, which lifts the quota for the moment of a start. A bound on block I/O
// is such a danger in both modes: see pin.
//
// # With systemd
//
// Package systemd starts the units and hands over descriptors: see "The handshake" there.
//
// systemd remembers the limits that it was given, and writes them again at every daemon-reload.
// chatd then writes the same value to the cgroup files itself, because systemd answers before it
// has written.
//
// # A killed cgroup is dead
//
// After one write to cgroup.kill the kernel ends every later CLONE_INTO_CGROUP into that directory
// at birth (tried: 6.1.0-50 and 6.18.44 do, 6.1.0-56 does not). So nothing starts where something
// was killed. Create and Start make a fresh session leaf, a run always has a new one, and Start
// refuses the leaf of a killed run.
//
// # Freezing
//
// cgroup.freeze of the leaf "session" is chatd's, for a chat that nobody uses ([FS.Freeze]). That
// of the chat's own cgroup is an operator's ([FS.FreezeAll]). A frozen process dies of a kill. Nothing
// starts in a frozen cgroup: see gate.
//
// # What it does not stop
//
// With systemd, the unit's own cgroup belongs to the chat (Delegate=yes). A process of the chat
// outside every view could make cgroups below it, or move its processes between them, but not past
// the limits, which are root's. A process that may talk to systemd as root can stop or change a
// unit; that is noticed, not hindered.
//
// Root inside a chat: cgroup files belong to root, and so does the right to leave. Bytes and inodes
// on a disk, network bandwidth: no controller is set for them. Block I/O that a profile does not
// bound, and of writes under cgroup v1 what the kernel does later. Latency: chats share CPUs and
// caches, the quota bounds only the sum, and a quota of 250 ms a second may be spent on all CPUs
// simultaneously. Memory that is charged to who touched it first: a page of the page cache belongs
// to the chat that read it first. Under cgroup v1 an OOM ends one process of a run, not the run,
// and counts of removed runs are forgotten when chatd restarts. Between Create and LimitCPU a
// session has no CPU quota, by design: under it a session would need three times as long to its
// prompt.
package cgroup
