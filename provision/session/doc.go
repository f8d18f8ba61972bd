// Package session starts the processes of sessions, brings commands into them, and finds them
// again.
//
// # Theory of operation
//
// A [Starter] starts bubblewrap (bwrap(1)) with the chat's credentials, by clone(2) straight
// into the chat's cgroup. Where systemd is PID 1 it starts the session instead, as a unit, with
// chatd-shim enter in front of bubblewrap (unit.go; see package systemd). Behind bubblewrap
// chatd-shim confine applies the remaining walls, and starts the first program:
//
//	bwrap                 pid 1 inside: the init process, held by pidfd
//	  └─ chatd-shim       confines itself, and becomes the program
//
// A child gets its input by descriptor and never by a name: plans, arguments and files are memory
// files (memfd_create(2)). It reports in this order: bubblewrap's pid 1 over one pipe, chatd-shim's
// report of the enforced walls over another, and one byte in a fifo when the shell is at its
// prompt. [Files] are those descriptors. Before the program starts, the session waits at the start
// barrier. Root masks counters of the host, bounds the session's terminals and applies the file
// rules meanwhile. Overlays give it inodes of its own for files that sessions share (overlays.go).
//
// A command enters a session through nsenter(1), as root, which joins the namespaces of the
// init process, and chatd-shim confine, which confines it as it does the session
// ([Starter.Enter]). It has a [Leaf] of its own: a cgroup by which chatd ends it with all
// processes that it forked. Its streams are pipes of the chat's uid ([Stdio]).
//
// A session outlives chatd. Its [Dir] has the data by which a later chatd finds it
// ([Session.Write]). The later chatd adopts it only when boot, start time, uid, cgroup and the
// unit's invocation all agree ([Starter.Adopt]).
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// It applies the walls that its caller plans: a [plan.View] that opens the host opens the host. A
// report comes from chatd-shim until the walls are up, and from the chat afterwards. A report is
// bounded in size and in time, and read once. A chat can delay the end of its processes; every wait
// for them is bounded. A session starts without a prompt if the chat's .bashrc never comes to one.
package session
