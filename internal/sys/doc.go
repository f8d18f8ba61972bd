// Package sys holds calls and files of the kernel that several packages need, or that have no
// word of chats in them: mountinfo; processes by number, uid and pidfd, their namespaces and
// orphans; threads of another uid; openat2(2), fifos and memory files. It knows nothing of chats.
//
// # Runs as
//
// root, in chatd-root and in chatd-enforce.
//
// # What it does not stop
//
// Anything: it reads, opens and signals what its caller names.
package sys
