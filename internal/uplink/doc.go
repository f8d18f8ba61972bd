// Package uplink is what chatd-root and chatd-egress say to each other.
//
// A [Conn] is one end of a SOCK_SEQPACKET connection. Each end calls the other, and answers its
// calls: a [Call] is one JSON object, its [Answer] another, and both may pass descriptors
// (SCM_RIGHTS of unix(7)). chatd-root says which chats are awake ([Open]), where they may connect
// ([Change]), which have ended ([Close]), and what it puts into their requests ([Secrets]).
// chatd-egress, which makes no socket that leads anywhere, asks for sockets: of a chat's uid in the
// host's network ([Socket]), to a DNS server ([Upstream]), and in a chat's network to answer its
// datagrams ([Reply]); and for what it shows where it ends TLS ([Certificate]). It reports what
// became of connections ([Events]).
//
// Package gateway is chatd-root's side of it, package egress the other.
//
// # Runs as
//
// root in chatd-root, and chatd-egress's own user.
//
// # What it does not stop
//
// It checks the form of messages. Whether a call may be answered is for the package that answers.
package uplink
