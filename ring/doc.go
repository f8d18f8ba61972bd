// Package ring keeps the end of a stream on the disk, in a directory with two files at most.
//
// A byte has the number of the bytes before it, from the first that was ever appended: its
// cursor. Each file is named by the cursor of its first byte, so that the names and the sizes
// are all there is to know, and a crash between two writes leaves nothing to repair. When the
// newer file is full a third is begun and the oldest is removed: between half of the bound and
// all of it are kept.
//
// # What it does not stop
//
// The directory is root's; a ring does not defend itself against who can write there. Nothing
// is synced: after a power cut the end of the stream may be missing, and then cursors are given
// a second time.
package ring
