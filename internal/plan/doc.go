// Package plan is what chatd-root tells chatd-shim about a session, and what chatd-shim answers: the
// view of the host ([View]) with bubblewrap's arguments for it, the rights that a process keeps
// ([Plan]), the programs in its PATH, the policy of those, and the tasks of a unit's first process
// ([Entry]) and of a file tool ([FileTool]). Package shims, on the chat's side, applies them.
//
// Runs as: chatd-root makes plans and writes the directories of shims; chatd-shim reads plans as
// the chat's uid, or as root before it becomes the chat. What is read is checked strictly: an
// unknown field may be a wall that the reader cannot apply.
//
// # What it does not stop
//
// Nothing by itself. A view that opens the host opens the host, and a plan that leaves out a layer
// is obeyed. A [Report] was written by a process of the chat's uid before it ran the chat's program.
package plan
