// Package exposure finds the paths of the host that a profile opens to its chats.
//
// # Theory of operation
//
// A profile names paths (expose_paths) and expressions (allow_read_paths, allow_write_paths).
// [Host.Exposed] finds their matches in the host's tree, from the root, name by name. It
// follows no link and passes only directories that only root may write to, so that bubblewrap,
// which opens the same path as the chat, finds the file that was checked (adrs/0005). It refuses
// chatd's own directories through any mount, and file systems that show the kernel. It compares
// an expression only with names that may lead to a match: see reacher.
//
// # Runs as
//
// root, in chatd-root; a thread of the chat's uid tries whether the chat can reach the paths.
//
// # What it does not stop
//
// Root of the host, and users whom an operator lets write below an exposed path: the package does
// not inspect the content. A mount that the host makes after the check. Messages between sessions
// that share a writable path (specs/0006-the-view.md).
package exposure
