// Package api is the server of chatd's HTTP API over a unix socket. The front runs it.
//
// A peer is known by what the kernel says of its socket (SO_PEERCRED and SO_PEERGROUPS of unix(7),
// socket(7)), never by what it writes. That gives a role. An operator is uid 0 or a member of an
// operators group. A bridge is a member of a bridges group. Everybody else gets 403. The table of
// package verbs has the role beside each path. row.go serves what a row says; the handlers of the
// rows in routes.go are written by hand, in the file of their topic. The caller travels in the
// context ([chat.CallerFrom]) to the implementation of [verbs.Chats], which decides which chats the
// caller may reach.
//
// A request passes these in order: a bound on connections per uid, the bounds of net/http on
// headers, recovery from panics, the peer's role, a bound on simultaneous requests, the path, the
// route and its role, the body (body.go), what the bodies of one owner may hold (bodymemory.go), and
// for lists how many their caller has not read, huma's schema from the types of package chat, and the
// Validate method of the type.
//
// Every answer with a status of 400 or more is problem+json (RFC 9457) with a stable kind, also
// where net/http cannot read a request and no handler runs (malformed.go). Package client has the one
// table of kinds and statuses, and turns a kind back into the error of package chat.
//
// # What it does not stop
//
// A member of the bridges group may use up its own bounds. [ServerOptions] has a number of requests
// for each uid, so that operators and other bridges still get in. A process that inherits an open
// connection has the rights of the process that connected. Leaving a group does not end connections
// that were made before. Text that came from a chat (a screen, the output of a run) is safe JSON
// here and may still hold control bytes once decoded. A program that shows it on a terminal must
// escape it. There is no TCP, no TLS and no rate limit.
package api
