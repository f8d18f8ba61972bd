// Package filecall makes the calls of the file tools on chatd-root's side. It starts the process of
// a tool, sends the request, and reports how the call ended.
//
// # Theory of operation
//
// A [Call] is one call of a tool. [Calls] has those of each chat: at most four of a chat run
// simultaneously, the others wait, and a reap cancels all. The tool is "chatd-shim filetool". Its
// [Process] gets two pipes; the caller of [Call.Start] decides where it runs: in a session, or in
// a one-shot session of its own.
//
// chatd-root sends the request, so that no other process chooses a tool or a path. Then the
// call's [files.Talk] gets the other ends of the pipes, and asks the call's Check about names:
// package filecall does not read a tool's output. A [Copy] copies a file from one chat to
// another: two calls, between which one talk copies.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A tool is a process of the chat, which can forge its answer and its failure. Only a denial by a
// rule of chatd's is not accepted from it. Check decides which names a call may use; the walls of
// the session bound the rest. A chat can stop its tool: the call then ends with its context.
package filecall
