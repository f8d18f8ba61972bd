// Package resolver answers the DNS queries of chats.
//
// A [Responder] answers one chat. It does not forward a query: for a name that the chat's list
// opens it answers with an address of its own choice, and says that no other name exists
// (NXDOMAIN). So an unlisted name leaves nothing on the wire, and DNS carries no data out of the
// chat's network. It gives a made-up address only after a [Client] has found that the name has a
// real one, because programs report a name without addresses better than a connection that ends.
//
// A [Book] holds the made-up addresses, one of IPv4 and one of IPv6 for each name. A connection to
// such an address is a connection to the name, whatever the protocol: package egress asks
// [Book.Host] for the name, and [Client.Addrs] for where it really is. The book outlives
// chatd-egress in a file, so that a program that keeps an address connects to the same name.
//
// Answers to HTTPS and SVCB queries (RFC 9460) are empty: they would carry real addresses, and keys
// that hide the name of a TLS connection.
//
// # Runs as
//
// chatd-egress's own user, in chatd-egress.
//
// # What it does not stop
//
// A query for a name below a listed wildcard carries its labels to the servers of that domain: a
// profile that lists *.example.com trusts the operators of example.com. The host's DNS servers, and
// the network on the way, learn which listed names are asked for, and when.
//
// Answers of the host's DNS servers are believed as the host itself believes them, without DNSSEC.
// A forged one sends the connection elsewhere, which only TLS or SSH in the chat detects. Package
// egress decides whether a real address may be connected to; this package answers for a name with
// private addresses too.
//
// A chat with a wildcard can fill its book, and then gets no new name in this session. A chat that
// looks up names of slow servers can take all of its own lookups: its other names then wait.
package resolver
