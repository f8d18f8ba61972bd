// Package netns sets up the network namespace of a session (network_namespaces(7)), in which lo is
// the only device.
//
// # Theory of operation
//
// A route makes every address local, so that nothing leaves the namespace: what a program sends to
// any address comes back by lo. There the redirect, a handful of nftables rules that are the same
// for each session, gives it to two sockets on [Port] (TPROXY, nft(8)): a TCP listener and a
// datagram socket. The redirect changes no packet and keeps no state: the local address of an
// accepted connection is the address that the program connected to, and a datagram tells its
// destination in a control message. What goes to loopback or to the session's own address stays
// between its programs.
//
// [Configure] makes all of that before the session's first program runs, by netlink (rtnetlink(7)).
// The sockets are root's: a program of the chat can neither close them nor take their port.
// chatd-root hands them to chatd-egress; package gateway.
//
// # Runs as
//
// root, in chatd-root. Each act is done by a thread that joins the namespace and ends.
//
// # What it does not stop
//
// Programs of one session from reaching each other, or from listening at an address that is
// outside for others: they deceive only themselves. Who has CAP_NET_ADMIN in the session's user
// namespace can change the rules there; no program of a chat has it, and the namespace has no
// device that leads out.
package netns
