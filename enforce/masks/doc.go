// Package masks mounts masks over the closed and read-only places of a session, in its mount
// namespace.
//
// # Theory of operation
//
// A mask of a closed place is an empty file or directory without a mode ([Sources]), or a tmpfs
// with mount points where exceptions lie inside. A mask of a read-only place is the place itself,
// read-only. An exception is the place itself again, mounted inside the mask around it.
//
// [Mounter.Apply] makes the masks of a session those of sorted places. It keeps each mask that is
// still wanted. It adds new masks before it removes old ones (attach_linux.go): a path that both
// the old and the new rules deny is masked at every moment. Each mount is made detached, is marked
// for the watch of opens, and only then attached.
//
// The package knows no session, no rule and no fanotify group: its caller joins the namespace, and
// [Mounter] has two functions that mark and forget a mount.
//
// # Runs as
//
// root, in chatd-enforce, on a thread in the session's mount namespace.
//
// # What it does not stop
//
//   - A descriptor that was open before keeps its access, and a process whose working directory is
//     in a mount that goes still sees that mount.
//   - A file that is made later at a masked or unmasked path has no mask until the next Apply.
//   - A place that was moved is not masked: Apply returns [ErrMoved], and the caller walks again.
package masks
