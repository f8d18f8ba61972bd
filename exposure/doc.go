// Package exposure looks up what a profile opens of the host to its chats.
//
// # Theory of operation
//
// A profile names paths (expose_paths) and expressions (allow_read_paths, allow_write_paths).
// [Host.Exposed] finds what they stand for in the host's tree, from the root, name by name. It
// follows no link and passes only directories that only root may write to, so that bubblewrap,
// which opens the same path as the chat, finds the file that was looked at (adrs/0018). It refuses
// chatd's own directories through any mount, and file systems that show the kernel. An expression
// is compared with as few names as it can match: see reacher.
//
// # Runs as
//
// root, in chatd-root; what the chat may pass is tried on a thread of its uid.
//
// # What it does not stop
//
// Root of the host, and whoever an operator lets write below an exposed path: the content is
// theirs, and is not looked at. A mount that the host makes after the look. What sessions that
// share a writable path tell each other (specs/0006-the-view.md).
package exposure
