// Package front is the life of the unprivileged process that answers callers: it takes over the
// descriptors that chatd-root hands it, gives up its rights, and serves.
//
// [Run] is chatd front, which chatd-root starts. It gets the listening socket, the control socket
// and the program itself, and learns its settings from chatd-root by the control socket. It reads
// no config. It reads nothing of a caller before it has given up what the front does not need.
//
// chatd-root starts the front as a user of its own, without a capability. Its network and IPC
// namespaces are its own and empty. The front adds, for every thread and for good
// (confine_linux.go): no new privileges (PR_SET_NO_NEW_PRIVS), Landlock that opens no path
// (landlock(7)), and a system call filter (seccomp(2)) that allows the calls of a Go server on open
// descriptors, and fails every other with EPERM: no open, no exec, no socket, no connect, no
// ptrace, no kill of another process. Its memory has a bound (RLIMIT_DATA of setrlimit(2)), and it
// leaves no core.
//
// What a terminal printed is parsed here and not by chatd-root ([RenderTerminals]).
//
// Runs as: user chatd, or a uid that owns nothing; without a capability from the first call
// of a caller on.
//
// # What it does not stop
//
// Use of the front's descriptors: to answer callers, and to send requests to chatd-root. On a
// kernel without Landlock that wall is missing, and the filter alone refuses paths. A
// compromised front can do to chats what an operator can: package broker, in chatd-root, bounds
// it.
package front
