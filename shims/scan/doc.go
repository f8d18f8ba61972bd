// Package scan looks on every local file system for files of uids whose chats are gone.
//
// # Theory of operation
//
// Reap removes what a chat has by layout, and package leftovers what daemons keep for users. A file
// of the uid may lie anywhere else: in a directory that was exposed, or where root copied it. No
// list of places finds it; a walk over all of them does. [Main] is that walk, the mode "scan" of
// chatd-shim. `chatd verify` starts it as root, with the lowest priorities for CPU and disk. It
// reads one [chat.StrayRequest] and writes one [chat.StrayLine] after another.
//
// The walk never leaves the file system that it is on ([sys.Walk]): it opens each name by openat2(2),
// which crosses no mount and follows no link, and looks at what it opened. So neither a rename nor a
// mount leads it elsewhere. It sends no name to a file system behind a mount, not even to ask for its
// owner, because a FUSE file system answers when its owner likes. [chooseMounts] has the file systems
// that it walks, each from its own root.
//
// A chat can make more directories than a walk has time for, and rename them ahead of it. So the walk
// ends after a time, holds 256 names of a directory, and names what it did not look into.
//
// # Runs as
//
// A uid that owns nothing, with CAP_DAC_READ_SEARCH alone, which opens every directory. Landlock
// leaves it the right to list directories, a seccomp filter no call but those of the walk; it can
// make no file, socket or process. Its input is names of files, its output one pipe to `chatd verify`.
//
// # What it does not stop
//
// It finds by uid: a file that root owns and a chat wrote is not found, nor one in an archive. It
// does not see files under a mount, below 64 directories, on network and FUSE file systems, nor those
// that move ahead of it each time. It walks containers' layers, not their overlays. A local disk that
// hangs holds it up. On a kernel without Landlock it could read files, and tell of them only by its pipe.
package scan
