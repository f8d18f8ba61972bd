package sys

// Inode identifies a file under all its names: its device and its number there.
type Inode struct {
	Major, Minor uint32
	Ino          uint64
}
