// Package wrapper stands in for programs in a session: chatd-shim under the name of rm, curl
// or sudo, as the target of a link in the first directory of PATH. [Main] checks the arguments
// of its program by a [shims.ShimPolicy]: what never runs here, the guard of the profile, file
// rules, egress. It becomes the program, or says in one line why it is refused and what to do
// instead, and tells chatd of it by a fifo.
//
// It runs as the chat, and is not linked into anything that runs as root.
//
// # What it does not stop
//
// A program that is called by its full name, as /usr/bin/rm, has no wrapper. The policy is a copy
// that the chat may read, and the chat itself reports denials to chatd: it can omit a line, or
// forge one. The wrapper guesses a program's targets from its arguments, its environment and its
// settings; the wall decides.
package wrapper
