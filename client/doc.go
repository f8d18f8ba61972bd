// Package client is the Go client of chatd's API over its unix socket, for bridges and the command
// line.
//
// [Client] has a method for each verb of package verbs. Its errors are [*Problem] where the daemon
// answered: RFC 9457 with a stable kind, which unwraps to the error of package chat that the kind
// names, so that errors.Is works across the socket. The server uses the same types, [Problem] and
// [FileAnswer].
//
// # Runs as
//
// Whoever calls the daemon: a bridge, or an operator's command line.
//
// # What it does not stop
//
// The daemon takes the caller from the socket, so that the client can hide nothing from it and gains
// nothing by lying. Text that came from a chat (a screen, the output of a run) may hold control bytes:
// a program that shows it on a terminal must escape it.
package client
