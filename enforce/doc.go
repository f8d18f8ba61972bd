// Package enforce makes the kernel keep the file rules of each session. It is the program
// chatd-enforce, one for a host. It takes orders (package orders), finds what rules close (package
// walls), mounts masks there (package masks) and checks the opens of files that are made later.
//
// # Theory of operation
//
// Package filerules defines the rules of a chat. For the kernel each path has one of three
// classes: open, read-only or closed (package pathclass).
//
// The enforcer is two processes. The holder owns the socket and the fanotify groups and does
// nothing else (holder_linux.go). The worker does everything else, and the holder restarts it when
// it ends (worker_linux.go). Opens wait until the new worker reads them. Opens that the old worker
// had read and not answered are refused. When the holder ends, the worker becomes the holder.
// Neither process is a child of chatd, so that rules hold while chatd restarts.
//
// Before the first code of the chat runs, and whenever the rules change, the worker walks every
// tree that the session sees (pathclass.Walker). Of a closed file that the session could rename or
// remove, on a file system whose names the kernel reports, it records the file handle, so that
// the chat's own trees have no mounts in them (adrs/0033). It mounts something over each other
// closed or read-only path (masks.Mounter): an empty file without a mode, an empty
// directory without a mode, or the file itself, read-only. It keeps the masks that the new rules
// also want, and adds new masks before it removes old ones. So a path that both rule sets deny is
// masked at every moment. The worker acts from a thread that has joined the
// session's mount namespace. The chat has no capability there: it can neither unmount a mask nor
// move the file below it.
//
// Files without a mask are guarded by two fanotify(7) groups (watch_linux.go). The first asks the
// worker before each open on the session's mounts. The second reports every file that is created
// or moved, so that a file which once had a denied name stays denied under every other name.
//
// # What it does not stop
//
//   - A descriptor that was open before a rule came keeps its access. A process whose working
//     directory a new rule closes cannot open files there, but can remove, move or truncate them.
//   - Names, sizes, modes and times are visible to stat(2), and by listing the directory around.
//   - A pattern through a link of the chat applies to all targets that the link had since the
//     session began. A session can add 64 targets, each denied milliseconds after the link is made.
//     Further targets are denied from the next session on.
//   - A closed file without a mask can be removed, replaced, moved or truncated by path
//     (truncate(2)) as far as its mode allows. A denial of write alone makes it read-only instead.
//   - On a file system whose names the kernel does not report, as overlayfs, a file that others
//     make later under a denied name can be renamed before anybody opens it.
//   - If both processes of the enforcer end simultaneously while chatd-root, which holds their
//     groups (package enforcer), is down, files without a mask can be opened until another
//     enforcer runs.
//   - Programs outside the session can read a file for the chat. Package filerules defines what
//     the rules mean.
package enforce
