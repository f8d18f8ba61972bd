package pathclass

import (
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// Base is one of bubblewrap's mounts. Tree is a detached copy of it alone, which shows the
// files below all mask mounts and submounts.
type Base struct {
	sys.Mount
	Tree    int
	Top     int // its root, in the session (O_PATH)
	Handles int // the same, for open_by_handle_at(2); -1 if there is none
	// Watched: the kernel reports the names made in it. Closed files in it need no mask.
	Watched bool
	// Dir and Inode are of its root.
	Dir   bool
	Inode sys.Inode
}

// Close closes its descriptors.
func (b *Base) Close() {
	for _, fd := range []int{b.Tree, b.Top, b.Handles} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
