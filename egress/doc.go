// Package egress carries what leaves the chats' networks: it decides by each chat's list where a
// connection or a datagram may go, and passes it there.
//
// # Theory of operation
//
// The network of a session has only lo. In it every address is local, and a packet rule (tproxy)
// leads each TCP connection and each datagram that is not for loopback to two sockets on port 53,
// which chatd-root made there and hands to [Serve] with the chat's list (package uplink). The local
// address of an accepted connection is where the chat wants to go. A datagram brings it as a
// control message (IP_ORIGDSTADDR). So there is no packet of a chat on any wire, and nothing to
// configure in a program: it connects to an address, and this package is what answers.
//
// Port 53 is for names: package resolver answers a listed name with a made-up address, which
// stands for that name in that chat alone (resolver.Book), and every other name with NXDOMAIN.
// What comes to a made-up address is for its name. Its real addresses are looked up here. Those
// of private networks and metadata services are left out, unless the list has them as addresses
// (decide.go). What comes to any other address must be listed as an address. Everything else is
// refused: a connection is reset, a datagram is dropped.
//
// The way out is a socket of the chat's uid in the host's network, which chatd-root makes
// (uplink.Socket) and connect.go connects; the packet rules of package netpolicy check it again.
// Of several addresses the first that answers is taken (dial.go). Bytes are passed by splice(2),
// with half-closed connections and resets as the peers made them, and no buffer for what is idle
// (relay.go).
//
// A connection by name is looked at while it begins, for many names may share one address
// (named.go). In TLS the server name of the ClientHello must be that name (hello.go). HTTP/1
// requests are read, checked and sent anew, each of them (web.go, webproxy.go). Anything else
// passes as it is, as does a connection by address.
//
// TLS to a host of a secret that the chat has is ended here, with a certificate that chatd-root
// makes (certcache.go, terminate.go). Each request is checked, and sent anew over TLS that knows the
// real server by the host's store. On the way the chat's placeholder in the header of the secret
// becomes the value, and what comes back has asterisks in the place of the value (secrets.go,
// terminateproxy.go, scrub.go, frames.go).
//
// Datagrams belong to a flow: a socket outside, and a socket in the chat's network that is bound to
// the address outside and connected to the chat's socket (uplink.Reply; flow.go), or a raw one
// where the chat's program has that port for itself (rawreply.go).
//
// chatd-root may end and come back. What is connected stays; what is new waits for it a few seconds
// and is refused then (root.go). A newer connection of chatd-root replaces the older one.
//
// Nothing of one chat is waited for without a bound. A session of HTTP closes each connection that
// it opened (web.go), and the end of a chat is waited for closeTimeout (network.go).
//
// What became of connections is counted and reported to chatd-root each second (tally.go).
//
// # Runs as
//
// A user of its own without a capability, in an empty network namespace. It makes no socket. After
// [Confine] it opens no file, starts no program, and uses only descriptors that chatd-root passes.
// A chat may have a number of connections, flows and questions (network.go), and all chats together no
// more than there are descriptors for.
//
// # What it does not stop
//
//   - Another site behind a listed name's server. TLS shows its server name and not the Host of the
//     requests inside (domain fronting); with an Encrypted ClientHello only the outer name.
//     A listed server may pass on what it gets to whomever it likes.
//   - HTTP to another site after the server has spoken first, or after a first line that is no
//     request (named.go), at a server that goes on after it or takes it for one.
//   - A second ClientHello, after a HelloRetryRequest, is not read: it reaches what Host reaches.
//   - Datagrams by name are not looked into: QUIC carries a server name that is not read.
//   - A host of a secret that sends the value in another encoding, or in parts.
//   - What is inside of a listed connection, and that its times and sizes are signals.
//   - A listener of the chat in its own network, on an address that it would reach otherwise here:
//     the chat deceives only itself.
//
// Some programs that are no attack are refused: TLS by name without a server name; by name,
// protocols whose client speaks first with GET or CONNECT and a space, or with another word of
// capitals and a path, such as Redis as people type it. A client by name that says letters without
// a line's end waits until it says more. An HTTP client that ends its side of the connection behind
// a request gets no answer, as from any server of net/http.
package egress
