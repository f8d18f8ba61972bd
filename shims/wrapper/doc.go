// Package wrapper stands in for programs in a session: chatd-shim under the name of rm, curl
// or sudo, as the target of a link in the first directory of PATH. [Main] checks the arguments
// of its program by a [plan.ShimPolicy]: what never runs here, the guard of the profile, file
// rules. It becomes the program, or says in one line why it is refused and what to do instead.
//
// It runs as the chat, and is not linked into anything that runs as root.
//
// # What it does not stop
//
// A program that is called by its full name, as /usr/bin/rm, has no wrapper. The policy is a copy
// that the chat may read. Hosts are not checked here: the network refuses them.
package wrapper
