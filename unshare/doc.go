// Package unshare keeps apart what sessions would otherwise share with each other and
// with the host although none of them may write to it.
//
// # Theory of operation
//
// inotify(7) and locks (flock(2), fcntl(2)) go by inode, not by permission: whoever may
// read a file of /usr can watch it, lock it, and so signal to everybody else who can.
// [Stage] therefore puts a read-only overlay of its own over each tree that sessions
// share, in the mount namespace from which bubblewrap starts. bubblewrap binds from
// there, so every session has inodes of its own; the pages of the files are still
// cached once for all. An overlay has two lower layers, the tree and an empty directory,
// because the kernel wants two where nothing is writable.
//
// Before that, Stage leaves in that namespace only the mounts that a session is made of (narrow):
// bubblewrap reads the list of all mounts for each of its own, so that the start of a session
// would take longer with each mount of the host.
//
// A session's /proc shows counters of the whole host. [Mask] covers those that programs
// do not need, from outside, before any code of the chat runs; [BoundTerminals] bounds
// the session's devpts. Both act on a process that the caller holds.
//
// An overlay remembers names it has looked up, also those that were not there.
// [Refresh] makes it forget them, so that a session sees what the host changed since.
//
// # What it does not stop
//
// The page cache is shared, and so is its timing. Inodes that the kernel has only once
// can still be locked by everybody: anonymous ones, as of an eventfd, and namespaces
// that sessions share (time, and network where it is shared). The counters that are
// left in /proc are those that ordinary programs need: meminfo, stat, loadavg, uptime
// and cpuinfo; sysinfo(2) tells the same. A tree that cannot be the lower layer of an
// overlay is shared as it is; the caller learns which. Unix sockets and fifos in an
// overlay lead nowhere: what should be reached has to be exposed read-write.
package unshare
