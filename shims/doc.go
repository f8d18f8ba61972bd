// Package shims is the chat's side of the wall: what a session sees, what a
// process gives up before it becomes the chat's, and what stands in its PATH.
//
// # The processes of a session
//
// All of them have the chat's uid; root is in none of them.
//
//	bwrap … ── chatd-shim confine ── tmux new-session ── bash
//
// A [View] gives bubblewrap's arguments (bwrap(1)): own user, pid, ipc, uts and cgroup namespaces,
// /usr read-only, a made-up /etc, and of the chat's things its home, its /tmp and its /var/tmp, and
// what its profile exposes of the host. [View.Mounts] is the list that the arguments are made from.
// Bubblewrap starts chatd-shim, which reads a [Plan] from a pipe, gives up by [Confine] everything
// that only the process itself can give up, says in a [Report] what came of it, and becomes the
// command. A later command joins the namespaces by nsenter(1) and goes through the same Confine;
// namespaces are inherited by joining, rights are not.
//
// The order in Confine is: descriptors, keyring, umask, signals, limits,
// no_new_privs and capabilities, directory, Landlock, seccomp, exec. Landlock
// comes after everything that opens a path, seccomp after everything that it
// would refuse.
//
// Under systemd "chatd-shim enter" comes before bubblewrap: it is the unit's first
// process, behind PAM, moves to the leaf of the unit, looks whether pam_namespace(8)
// did its part, and hands the unit over to the session when that is up.
//
// "chatd-shim filetool" does one request of package files and ends. It is started
// like any command, through confine, and has two pipes to chatd.
//
// [Main] is the program chatd-shim. Under another name, as the target of a link
// in the first directory of PATH, it is package wrapper, which checks that program's
// arguments by a [ShimPolicy]. "chatd-shim probe" tries each wall from inside.
//
// Every wall can be left out by its [chat.LayerName], for tests that show that
// the wall is what stops an attack.
//
// # What it does not stop
//
// The PATH of shims is advice: /usr is readable, so /usr/bin/anything starts by
// its full name; what it may then do is said by the other walls. The seccomp
// filter is a list of refusals, not of permissions: a system call that nobody
// has thought of passes. A chat may trace and kill its own processes, run any
// code it can write to its home, fill its home and /tmp (quotas are elsewhere),
// and use memory, pids and CPU up to the limits that package cgroup sets. Where packets
// may go in a shared network namespace is package netpolicy's. The page cache
// and the CPU are shared with the host, and so are their timing channels.
package shims
