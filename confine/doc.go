// Package confine takes from the front what reading callers' text does not need.
//
// chatd-root starts the front as a user of its own, without a capability, in a network and an
// IPC namespace of its own that have nothing in them. [Front] adds, for every thread and for
// good: no new privileges (PR_SET_NO_NEW_PRIVS), Landlock that opens no path (landlock(7)), and
// a system call filter (seccomp(2)) that lets pass what a Go server on descriptors that it
// already has needs, and fails everything else with EPERM: no open, no exec, no socket, no
// connect, no ptrace, no kill of another process. Its memory has a bound (RLIMIT_DATA of
// setrlimit(2)), and it leaves no core.
//
// # Runs as
//
// The front, as user chatd, before it reads the first byte of a caller.
//
// # What it does not stop
//
// What the descriptors allow that the front has: answering callers, and asking chatd-root. On a
// kernel without Landlock that wall is missing, and the filter alone refuses paths.
package confine
