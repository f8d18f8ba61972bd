// Package runwire is what chatd-root and the supervisor of a background run ("chatd-shim mind",
// package supervise) say to each other: the descriptors that the supervisor starts with, the [Spec]
// of the run, the orders that it gets, and how the run ended.
//
// # Runs as
//
// root, in chatd-root, and in the supervisor as root and then as a uid that owns nothing.
//
// # What it does not stop
//
// Anything: it has no process and decides nothing. chatd-root reads an [End] that the supervisor
// wrote, in a file of root's own, and a supervisor that was taken over may write another one.
package runwire
