// Package systemd asks systemd for units, and starts sessions as transient services to which it
// hands descriptors.
//
// A [Bus] is a connection to PID 1 over D-Bus (org.freedesktop.systemd1(5)). It starts, stops,
// changes and freezes units, each with a bound on the wait.
//
// # The handshake
//
// systemd before 256 passes no descriptors to a transient service but the three of stdio, so the
// first process of a unit (chatd-shim enter) has a socket to chatd as stdin, of type
// SOCK_SEQPACKET, and they say:
//
//	unit   here         PAM let it in, and it runs
//	chatd  files        with the descriptors of the session (SCM_RIGHTS)
//	unit                moves to the leaf "session", ends systemd's PAM helper, starts
//	                    bubblewrap, tells systemd READY=1: StartSession returns
//	chatd  main <pid>   once the prompt is up (Settle)
//	unit   settled      systemd has <pid> for the unit's main process; it ends
//
// Any other message from the unit is an error. Until "settled" the unit ends when chatd does;
// after it the unit does not need chatd.
//
// Runs as: root.
//
// # What it does not stop
//
// A caller of systemd with root's rights can stop or change a unit. chatd notices that by the
// invocation, and does not hinder it. Limits are values that package cgroup gives; this package
// checks none of them.
package systemd
