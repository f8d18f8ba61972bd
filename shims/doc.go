// Package shims is the chat's side of the walls: the file tree of a session, the rights that a
// process gives up before it runs the chat's program, and the programs in its PATH.
//
// # The processes of a session
//
// All of them have the chat's uid; root is in none of them.
//
//	bwrap … ── chatd-shim confine ── tmux new-session ── bash
//
// A [plan.View] makes bubblewrap's arguments (bwrap(1)): own user, pid, ipc, uts and cgroup namespaces,
// /usr read-only, a generated /etc, the chat's home, /tmp and /var/tmp, and the paths of the host
// that its profile exposes. They are made from the list [plan.View.Mounts]. Bubblewrap starts
// chatd-shim, which reads a [plan.Plan] from a pipe, gives up in [Confine] the rights that only the
// process itself can give up, writes a [plan.Report] of the result, and execs the command. A later
// command joins the namespaces by nsenter(1) and goes through the same Confine: joining
// namespaces does not drop rights.
//
// The order in Confine is: descriptors, keyring, umask, signals, limits,
// no_new_privs and capabilities, directory, Landlock, seccomp, exec. Landlock
// comes after everything that opens a path, seccomp after everything that it
// would refuse.
//
// Under systemd "chatd-shim enter" runs before bubblewrap: it is the unit's first
// process, behind PAM. It moves to the leaf of the unit, checks that pam_namespace(8)
// mounted the private directories, and hands the unit over to the session once that is up.
//
// "chatd-shim filetool" serves one request of package files and ends. It starts
// like any command, through confine, and has two pipes to chatd.
//
// [Main] is the program chatd-shim. Called by another name, through a link in the first
// directory of PATH, chatd-shim runs package wrapper, which checks that program's
// arguments by a [plan.ShimPolicy]. "chatd-shim probe" tries each wall from inside.
//
// Tests can leave out each wall by its [chat.LayerName], to show that this wall stops an attack.
//
// # What it does not stop
//
// The PATH of shims is advice: /usr is readable, so /usr/bin/anything starts by
// its full name, and only the other walls confine it. The seccomp filter is a list of
// refusals, not of permissions: it passes every system call that the list lacks. A chat
// may trace and kill its own processes, run any code that it can write to its home, fill
// its home and /tmp (chatd sets no disk quota), and use memory, pids and CPU up to the
// limits that package cgroup sets. Package egress decides where its connections may go. Sessions
// share the page cache and the CPU with the host, and
// so the timing channels of both.
package shims
