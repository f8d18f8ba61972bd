// Command chatd gives every conversation a Linux user of its own.
//
// "chatd serve" is the service that runs as root, and "chatd wall" raises its packet
// rules before it is up; every other command asks the service over its unix socket, as
// any member of its groups may. Those commands have the words of the API: create,
// ls, show, run, send, screen, wake, sleep, reap, doctor. "chatd explain --policy" and "chatd policy"
// ask nobody: they read file rules. Each stands in a file of its own; config.go has what serve reads,
// output.go what every command writes.
//
// # What it does not stop
//
// A client command has no rights of its own: whoever may open the socket may send
// the same requests with curl. Output of a chat is escaped only when standard
// output is a terminal; what a pipe's reader does with control bytes is up to it.
package main
