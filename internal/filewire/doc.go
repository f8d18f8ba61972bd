// Package filewire is what the callers of an agent's file tools and the tools say to each other: the
// five tools' arguments with their bounds, the answers and refusals, the options that limit a tool,
// and the lines and chunks on the two pipes. Package files, on the chat's side, executes the tools.
//
// Runs as: each side of a call. The front has the arguments of callers and speaks with a tool
// ([Speak]), chatd-root sends it the request ([Send]), the tool answers as the chat's uid.
//
// # What it does not stop
//
// The tool is a process of the chat, and may answer whatever fits the form: [Speak] bounds an answer
// and its content, and believes neither. The names in a request are the caller's; only the tool can
// say where they lead.
package filewire
