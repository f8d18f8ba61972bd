// Package gateway finds, starts and tells chatd-egress, which carries the connections of chats.
//
// # Theory of operation
//
// [Gateway.Open] sets up the network namespace of a session that begins (package netns), holds the
// two sockets to which everything that leaves it leads, and hands them to chatd-egress, with what
// the chat may connect to. chatd-egress runs as a user of its own, without a capability, in an
// empty network namespace. Every socket by which something leads out it asks for (package uplink):
// they are made here, with the chat's uid and the gid of chatd-egress, so that the packet rules see
// them as the chat's, and see that no program of a chat made them (package netpolicy).
//
// It is no part of chatd-root's life: connections go on while chatd-root is down.
// [Gateway.Follow] finds the one that answers, tells it which chats are awake, and starts another
// when it ends. What was connected by the old one ends; the sockets of the sessions are held here,
// so that new connections wait for the next one. Where systemd is PID 1 it starts chatd-egress, by
// its socket; elsewhere it is a child that outlives chatd-root.
//
// The package also is the certificate authority of one chatd, which only its own chats trust.
// chatd-egress ends TLS for the hosts of a secret. It shows the chat a certificate of the host,
// which [Authority.Issue] signs here: for one host, for some days. The sessions of chats with a
// secret trust [Authority.Certificate], and nothing else of the host does. The key is derived from
// a seed, which is of the install key. So there is no file that could be lost or read apart from
// that: a backup has it, a restore brings it back, and what sessions trust is the same after each
// start of chatd-root.
//
// # Runs as
//
// root, in chatd-root. It links no TLS.
//
// # What it does not stop
//
// Whoever takes chatd-egress over sees what chats send, may connect with the uid of each awake chat
// whose network it carries, and is then held by the packet rules alone: with a name in egress they
// let its port of every public address through. They may report connections of these chats that
// were none, and none that were.
//
// An [Authority] issues a certificate for any host; [Gateway] checks who may have it. A program
// outside of sessions that trusts the authority's certificate trusts all who have the install key.
package gateway
