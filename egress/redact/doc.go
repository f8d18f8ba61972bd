// Package redact takes texts out of what a server sends: asterisks of the same number stand in their
// place, so that no length changes.
//
// # Theory of operation
//
// A text may be divided between the pieces of a stream, so the end of a piece waits for the next
// one. What waits depends on the length of the longest text and on which characters are visible,
// and not on the texts themselves: a chat that has a server send what it likes would read a text by
// what waits. In WebSocket a text may be divided among the fragments of a message, whose headers
// and control frames keep their places ([WebSocket]).
//
// Texts are asked for with each piece, because they may change while a stream goes on.
//
// # Runs as
//
// The user of chatd-egress.
//
// # What it does not stop
//
// A text in another form than itself and its usual escapes ([Escaped]): coded, compressed, in parts
// that are no pieces of one stream. The caller has servers send what can be read.
package redact
