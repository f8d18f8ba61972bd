package diskquota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/provision/safefs"
)

const (
	// maxDepth is how many directories a walk enters below each other.
	maxDepth = 64
	// batch is how many names are read simultaneously; after them a walk rests.
	batch = 256
	// restFactor: a walk rests for nineteen times as long as it works, and there are two at a time.
	restFactor = 19
)

// Walk counts what uid has in the directory name of the root-owned directory parent, up to most
// names. A file counts as the share of it that one of its names has. The tree is the chat's and
// may change meanwhile; what cannot be opened is passed over. A name that does not exist has
// nothing.
func Walk(ctx context.Context, parent, name string, uid uint32, most uint64) (Amount, error) {
	p, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Amount{}, fmt.Errorf("cannot open %s: %w", parent, err)
	}
	defer unix.Close(p)
	w := &walk{uid: uid, most: most, began: time.Now()}
	top, err := safefs.OpenDir(p, name)
	if errors.Is(err, unix.ENOENT) {
		return Amount{}, nil
	}
	if err != nil {
		return Amount{}, err
	}
	err = w.directory(ctx, top, 1)
	return Amount{w.blocks * 512, w.inodes}, err
}

type walk struct {
	uid            uint32
	most           uint64
	blocks, inodes uint64
	began          time.Time // of the work since the last rest
}

// directory counts the open directory fd and what is below it, and closes it.
func (w *walk) directory(ctx context.Context, fd, depth int) error {
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("cannot count a directory: %w", err)
	}
	st.Nlink = 1
	w.add(st)
	for w.inodes < w.most {
		names, err := f.Readdirnames(batch)
		if len(names) == 0 || err != nil {
			return nil // the end, or it was removed meanwhile
		}
		for _, name := range names {
			if err := w.entry(ctx, fd, name, depth); err != nil {
				return err
			}
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(ctx context.Context, dir int, name string, depth int) error {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // removed meanwhile
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		w.add(st)
		return nil
	}
	if depth == maxDepth || w.inodes >= w.most {
		return nil
	}
	fd, err := safefs.OpenDir(dir, name)
	if err != nil {
		return nil // renamed or removed meanwhile, or another file system
	}
	return w.directory(ctx, fd, depth+1)
}

func (w *walk) add(st unix.Stat_t) {
	if st.Uid != w.uid {
		return
	}
	names := max(uint64(st.Nlink), 1)
	w.blocks += uint64(st.Blocks) / names
	w.inodes++
}

// rest waits so that two walks take a tenth of one CPU.
func (w *walk) rest(ctx context.Context) error {
	timer := time.NewTimer(restFactor * time.Since(w.began))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	w.began = time.Now()
	return nil
}
