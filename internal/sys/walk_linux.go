package sys

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// walkBatch is how many names of a directory are held.
	walkBatch = 256
	// maxWalkDepth is how many directories a walk enters below each other.
	maxWalkDepth = 64
)

var errDeep = fmt.Errorf("it lies below %d directories", maxWalkDepth)

// Walk looks at the files below a directory that others change meanwhile. It opens each name before
// it looks at it, follows no link and crosses no mount, so that it waits for no FUSE server. Its
// memory does not depend on the tree.
type Walk struct {
	// Seen gets each file. fs.SkipDir keeps the walk out of a directory, any other error ends it.
	Seen func(path string, st *unix.Stat_t) error
	// Unseen gets each file that the walk cannot look into. The error is EXDEV at a mount.
	Unseen func(path string, why error)
}

// From looks at the file of the descriptor, whose path is path, and at all below it. It closes fd.
func (w Walk) From(fd int, path string) error { return w.look(fd, path, 0) }

func (w Walk) look(fd int, path string, depth int) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.Unseen(path, err)
		return nil
	}
	err := w.Seen(path, &st)
	switch {
	case err == fs.SkipDir:
		return nil
	case err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return err
	case depth == maxWalkDepth:
		w.Unseen(path, errDeep)
		return nil
	}
	dir, err := OpenOnMount(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		w.leaveOut(path, err)
		return nil
	}
	return w.list(os.NewFile(uintptr(dir), "."), path, depth)
}

func (w Walk) list(dir *os.File, path string, depth int) error {
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(walkBatch)
		for _, name := range names {
			below := filepath.Join(path, name)
			fd, err := OpenOnMount(int(dir.Fd()), name, unix.O_PATH)
			if err != nil {
				w.leaveOut(below, err)
			} else if err := w.look(fd, below, depth+1); err != nil {
				return err
			}
		}
		if err != nil {
			if err != io.EOF {
				w.leaveOut(path, err)
			}
			return nil
		}
	}
}

// leaveOut reports what cannot be opened, except a file that was removed or replaced meanwhile.
func (w Walk) leaveOut(path string, err error) {
	if !Gone(err) {
		w.Unseen(path, err)
	}
}
