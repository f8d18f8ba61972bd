// Command chatd gives every conversation a Linux user of its own.
//
// "chatd serve" becomes chatd-root, the part of the service that runs as root, which starts "chatd
// front", the part that does not. "chatd wall" raises the packet rules before that. Every other
// command asks the service over its unix socket, as any member of its groups may. Those commands
// have the words of the API: create, ls, show, run, send, screen, wake, sleep, reap, doctor. "chatd
// explain --policy" and "chatd policy" ask nobody. They read file rules. Each stands in a file of
// its own; package config reads what serve is told, package printer writes the answers.
//
// # What it does not stop
//
// A client command has no rights of its own: whoever may open the socket may send
// the same requests with curl. Output of a chat is escaped only when standard
// output is a terminal; what a pipe's reader does with control bytes is up to it.
package main
