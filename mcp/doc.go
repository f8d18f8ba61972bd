// Package mcp offers one chat to an agent as tools of the Model Context Protocol
// (https://modelcontextprotocol.io): exec, background runs (run_start, run_poll, run_stdin,
// run_end), the five file tools, terminal_send and terminal_read, and explain. table.go has
// them all, with title, hints and schemas.
//
// Each tool is one call of [api.Chats], with the arguments that the API has: the
// input schema is made from the same type, doc tags and bounds included. So what
// comes in here is judged, walled in, limited and audited as what comes in over the
// API, by whoever does it there; this package decides nothing.
//
// What a tool refuses, or cannot do, is an answer with isError and one line that an
// agent can act on: "kind: what and why". An answer says nothing of the host but what
// the chat itself sees: of a rule not the file that it stands in, of an internal error
// only the reference by which the operator finds it in the log.
//
// An answer is text, and the same as a value that its output schema describes. It is bounded: of
// each stream of exec head and tail, together [MaxText] or less, and no more is kept in the daemon;
// of a file a page, after which the answer says where to go on.
//
// A call that takes long can be told of: an agent that sends a progress token hears every
// few seconds that its call goes on, and need not give up. What takes longer than an
// agent can wait is a background run.
//
// Serve speaks over standard input and output, one agent for the life of a process. [Web]
// speaks streamable HTTP and keeps nothing between requests: each is made as its own
// caller, who is in its context, and a call ends with its request, or when its caller
// cancels it in the same session (notifications/cancelled).
//
// # What it does not stop
//
// An agent. It may do in the chat whatever the chat may, also type into a terminal
// where somebody else is typing. What a chat printed or wrote comes to the agent as it
// is, and may be written to mislead it; whoever shows it on a terminal must escape
// it. A tool that the profile switches off is still in the list, and refuses.
package mcp
