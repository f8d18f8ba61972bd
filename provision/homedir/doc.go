// Package homedir makes a chat's home, and the directories that every home has.
//
// # Theory of operation
//
// [MakeOwned] builds a directory beside its place and renames it: a crash leaves a whole home or
// none. Until then it is root's, below a parent that is root's.
//
// Later every name in it is the chat's. [Inside] therefore opens the home from its parent and acts
// on a thread of the chat's uid; [MakeInstanceDirs] and [MakeMountPoint] open each name below that
// descriptor and follow no link. A file of the chat's in the way stays, or moves aside.
//
// # Runs as
//
// root, in chatd-root; inside of a home, a thread of it with the chat's uid.
//
// # What it does not stop
//
// The chat, which may remove, replace or close these directories: that misleads only itself. A
// skeleton is root's, and is copied unchanged except for set-id bits. [MakeOwned] corrects owner and
// mode of an existing directory, never its content.
package homedir
