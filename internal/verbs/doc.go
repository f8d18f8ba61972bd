// Package verbs is the one table of what callers may ask of chats and of the host.
//
// A row has a verb's name, its path and method in the API, who may ask, and the method of [Base] or
// [Chats] that serves it. Each topic has a file: its interface, its rows, and the methods of [Calls]
// that make the call. Everything else follows from a row. Package api serves its route, and describes
// it in OpenAPI. Package broker takes it from the front to chatd-root. [Calls] are the methods of both
// clients: of broker's, and of package client's over HTTP.
//
// A verb that streams, or has a query or two kinds of answers, has a row too. Its handler in package
// api and its calls in client and broker are written by hand, by the row's name. What the front alone
// asks chatd-root ([Checks], [Streams], [FileTools]) is not in the table: a caller cannot ask it.
//
// # Runs as
//
// The front, chatd-root and callers of the API, each as its own user.
//
// # What it does not stop
//
// A row says who may ask; package api compares it with the caller's role. [Base] and [Chats] decide
// which chats a caller may reach, and chatd-root decides again for each call of the front.
package verbs
