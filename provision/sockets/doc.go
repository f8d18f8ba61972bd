// Package sockets bounds what the kernel holds for the sockets and file locks of a session, which
// no control group counts in full.
//
// # Why
//
// Data that waits in a socket is kernel memory. The kernel charges some of it to the cgroup:
// AF_UNIX, and received data in TCP and UDP. It charges the rest to no cgroup (tried on
// 6.18): a connection that waits to be accepted, with all data sent to it; an unfinished
// datagram (MSG_MORE); a copy on an error queue, which the chat can also request for
// each message, where no filter of system calls sees it; netlink; and record locks
// (fcntl(2)).
//
// # How
//
// Four times a second [Watch] counts the sockets of each session's network namespace, which costs
// some microseconds and is enough for most sessions: few sockets cannot hold much. If a session has
// more, and more than before, Watch lists its sockets. The kernel reports each socket's memory and
// uid (sock_diag(7)), which costs about a millisecond. A socket that no list of the kernel shows is
// unbound: Watch asks what it holds (pidfd_getfd(2)), for 2,048 of a session's; others count with
// their maximum. Once a second Watch counts record locks by process
// (proc_locks(5)).
//
// Watch reports a session that holds more than its share, half of memory_max, with the reason, and
// the caller ends it. [Probe] tries on a session that Watch would see the data in its sockets.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// The package only counts; the caller ends sessions. Between two counts a chat can exceed its
// share. In the host's network (a host without the layer network), a netlink socket and an unlisted
// one have no uid.
package sockets
