// Package ring keeps the end of a stream on the disk, in a directory with two files at most.
//
// The cursor of a byte is the number of bytes ever appended before it. Each file is named by
// the cursor of its first byte, so that names and sizes are the whole state, and a crash between
// two writes leaves nothing to repair. When the newer file is full, the ring begins a third and
// removes the oldest: it keeps between half of the bound and all of it.
//
// # What it does not stop
//
// The directory is root's; a ring does not defend itself against other writers there. It does
// not sync: after a power cut the end of the stream may be missing, and the ring then uses its
// cursors a second time.
package ring
