// Package egresslog keeps what became of chats' connections, and says which refusals the audit log
// gets.
//
// # Theory of operation
//
// chatd-egress reports events (package gateway passes them on). [Log.Add] counts them by verdict,
// and keeps the latest entries of each chat: events that are alike in one minute are one entry. A
// chat cannot push another one's entries out, unless all chats together have very many, and then
// the chat with most loses its oldest.
//
// The first refusal of each destination in an hour is a line of the audit log, and at the hour's
// end one more if it was refused again. A chat can bring about refusals without end, so it has a
// number of lines, and one line an hour with how many refusals no other line tells of.
//
// All of it is in memory: it is forgotten when the chat is reaped, and when chatd-root ends. The
// audit log stays.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Nothing: it only tells. A chatd-egress that was taken over tells what it likes of open chats.
package egresslog
