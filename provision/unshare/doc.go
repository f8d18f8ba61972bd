// Package unshare gives each session inodes of its own for files that sessions and the host
// share read-only.
//
// # Theory of operation
//
// inotify(7) and locks (flock(2), fcntl(2)) go by inode, not by permission. A process that may read
// a file of /usr can watch it and lock it, and so signal to every other reader. [Stage] therefore
// mounts a read-only overlay of the session's own over each shared tree, in the mount namespace
// from which bubblewrap starts. bubblewrap binds from there, so every session has inodes of its
// own; the page cache still holds each file once. An overlay has two lower layers, the tree and an
// empty directory, because the kernel requires two if there is no upper layer.
//
// Before that, Stage reduces that namespace to the mounts that a session needs (narrow). bubblewrap
// reads the list of all mounts for each mount that it makes, so that each mount of the host would
// slow the start of a session.
//
// A session's /proc shows counters of the whole host. [Mask] masks those that programs
// do not need, from outside, before any code of the chat runs; [BoundTerminals] bounds
// the session's devpts. Both act on a process that the caller holds.
//
// An overlay caches looked-up names, also of missing files. [Refresh] makes it drop them,
// so that a session sees the host's later changes.
//
// # What it does not stop
//
// Sessions share the page cache and its timing. Every session can still lock the inodes that
// the kernel has only once: anonymous ones, as of an eventfd, and those of namespaces
// that sessions share (time). /proc still has the
// counters that ordinary programs need: meminfo, stat, loadavg, uptime and cpuinfo, which
// sysinfo(2) returns too. Sessions share a tree that cannot be the lower layer of an
// overlay; the caller learns which. Unix sockets and fifos in an overlay do not connect
// to the host's: a profile must expose those read-write.
package unshare
