// Package sys holds calls and files of the kernel that several packages need: mountinfo,
// processes by number, uid and pidfd, orphans, threads of another uid, and openat2(2). It knows
// nothing of chats.
//
// # Runs as
//
// root, in chatd-root and in chatd-enforce.
//
// # What it does not stop
//
// Anything: it reads, opens and signals what its caller names.
package sys
