// Package pending compares what a session was started with with what its chat has by now.
//
// A session keeps some of that until it ends: its view, its variables, what each process inherits. Its
// fingerprint says what it was. What differs is pending until the chat wakes again; other changes hold
// immediately, and limits that the kernel refuses are tried again.
//
// # Runs as
//
// root, in chatd-root. It reads only its arguments.
//
// # What it does not stop
//
// It compares what chatd recorded, not the kernel: what somebody changed in a session behind chatd's
// back it does not see.
package pending
