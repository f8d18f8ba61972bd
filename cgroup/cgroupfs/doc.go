// Package cgroupfs works on cgroups by their directories in the kernel's cgroup file systems. It
// makes and removes them, reads and writes their files, lists the processes in them, and kills all
// of those (cgroups(7), cgroup-v2.rst).
//
// It knows of directories and pids, and of no chat, limit or backend: package cgroup decides which
// cgroup stands for what. Of package chat it has the kinds of errors alone. A cgroup that is gone,
// or goes while it is read (ENODEV), is [chat.ErrNotFound]; one that processes are left in is
// [chat.ErrBusy].
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A caller that names a directory which is not a cgroup: it writes and removes what is named. A
// process that is moved in from elsewhere while [Kill] runs is killed by the next pass. One that is
// moved in after the last pass lives. A pid that [Members] returns may belong to another process
// when it is used.
package cgroupfs
