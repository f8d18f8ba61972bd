// Package mcp offers one chat to an agent as tools of the Model Context Protocol
// (https://modelcontextprotocol.io): exec, background runs (run_start, run_poll, run_stdin,
// run_end), the five file tools, terminal_send and terminal_read, and explain. table.go has
// them all, with title, hints and schemas.
//
// Each tool is one call of [verbs.Chats], with the arguments that the API has. The input schema is
// made from the same type, doc tags and bounds included. So a call is checked, confined, limited
// and audited as one over the API, by the same code; this package decides nothing.
//
// A refusal or failure is an answer with isError and one line that an agent can act on: "kind: what
// and why". An answer reveals of the host only what the chat itself sees: no file of a rule, and of
// an internal error only the reference to the operator's log.
//
// An answer is text, and the same as a value that its output schema describes. It is bounded: it
// has head and tail of each stream of exec, together at most [MaxText], and the daemon keeps no
// more; of a file it has a page, and where to continue.
//
// An agent that sends a progress token is notified every few seconds that its call is still
// running, and need not give up. Work that takes longer than an agent can wait belongs in a
// background run.
//
// Serve serves one agent over standard input and output, for the life of a process. [Web] serves
// streamable HTTP and keeps no state between requests: each has the caller in its context, and a
// call ends with its request, or when its caller cancels it in the same session
// (notifications/cancelled).
//
// # What it does not stop
//
// An agent. It may do in the chat whatever the chat may, and type into a terminal that another
// client uses. A chat's output and files reach the agent unchanged, and may be written to mislead
// it. A program that shows them on a terminal must escape them. A tool that the profile switches
// off is still in the list, and refuses.
package mcp
