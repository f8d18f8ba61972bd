// Package apitest has an verbs.Chats in memory for tests of the API, of the
// client and of the command line.
//
// It is honest about what callers see: phases, owners, reach, idempotent create,
// sleeping chats without usage, pages. It has no users, no processes and no walls:
// a run answers from a small list of commands.
//
// # What it does not stop
//
// Anything. It is for tests only.
package apitest
