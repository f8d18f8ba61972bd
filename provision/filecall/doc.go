// Package filecall makes the calls of the file tools on chatd-root's side. It starts the process of
// a tool, sends the request, and reports how the call ended.
//
// # Theory of operation
//
// A [Call] is one call of a tool. [Calls] has those of each chat: at most four of a chat run
// simultaneously, the others wait, and a reap cancels all. The tool is "chatd-shim filetool". Its
// [Process] gets two pipes, and starts as root in a mount and a pid namespace of its own, where it
// waits. With the request it gets what it may see and the chat's rules; it makes that view, becomes
// the chat and checks the rules itself ([plan.ToolView]).
//
// chatd-root sends the request, so that no other process chooses a tool or a path. Then the
// call's [filewire.Talk] gets the other ends of the pipes: package filecall does not read a tool's
// output. A [Copy] copies a file from one chat to another: two calls, between which one talk copies.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// The front, which speaks with the tool, may report another outcome, but a denial only by a rule that
// there is. A tool that sleeps in the kernel outlives its call.
package filecall
