// Package sys holds calls and files of the kernel that several packages need: mountinfo,
// /proc/PID/stat and openat2(2). It knows nothing of chats.
//
// # Runs as
//
// root, in chatd and in chatd-enforce.
//
// # What it does not stop
//
// Anything: it reads and opens what its caller names.
package sys
