// Package limits keeps the limits of living sessions as they are recorded, and tells which they met.
//
// Package cgroup sets a limit; this package says which, remembers what the kernel refused, and tries
// that again each minute. Hits go into the terminal's log, chatd's and the audit log. Package sockets
// counts what no cgroup counts.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A limit below what a chat holds waits until the chat holds less. Hits between two looks are counted,
// not timed.
package limits
