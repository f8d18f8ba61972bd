// Package safefs makes, replaces and removes files and directory trees below directories that
// root owns.
//
// # Theory of operation
//
// A tree's content may be a chat's, and hostile: links, names of any bytes, a depth that no path
// can name. [Remove] therefore acts on what it has opened, follows no link, crosses into no other
// file system, and holds three descriptors however deep the tree is.
//
// Root's own files appear in one step: [Replace] and [ReplaceFile] make them under the name of
// [AsideName] and rename them. A crash leaves the old file or the new.
//
// A program that root runs must be one that only root can have written: [CheckProgram] refuses any
// other, and [InstallProgram] copies one to where sessions see it.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A parent that is not root's: a user who may write there can swap the tree by its name. A chat
// that still runs can add files as fast as [Remove] removes them: its processes have to end first.
// The package syncs no write.
package safefs
