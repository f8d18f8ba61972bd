// Package sockets tells what the kernel holds for the sockets and file locks of a
// session, which no control group counts in full.
//
// # Why
//
// What waits in a socket is kernel memory. The memory controller is charged for some of
// it: AF_UNIX, and what waits to be read in TCP and UDP. Nobody is charged for the rest
// (tried on 6.18): a connection that waits to be accepted, with all that was sent to it;
// a datagram that is not finished (MSG_MORE); a copy on an error queue, which the chat
// can also ask for message by message, where no filter of system calls sees it;
// netlink; and record locks (fcntl(2)).
//
// # How
//
// [Room] is the network namespace of a session. [Room.Count] reads how many sockets it has, which
// costs some microseconds and is enough for most sessions: few sockets cannot hold much.
// [Room.Look], which costs about a millisecond, asks the kernel for each socket and what it holds
// (sock_diag(7)), by uid. A socket that no list of the kernel shows is one that was unbound again;
// it counts for as much as it can hold.
//
// [Locks] counts record locks by process.
//
// # What it does not stop
//
// Anything: it counts. The time between two looks belongs to the chat. In a network that
// is shared, a netlink socket and one that no list shows have no uid.
package sockets
