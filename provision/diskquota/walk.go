package diskquota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

const (
	// batch is after how many names a walk rests.
	batch = 256
	// restFactor: a walk rests for nineteen times as long as it works, and there are two at a time.
	restFactor = 19
)

var errMost = errors.New("the walk has counted as much as it may")

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
	top, err := safefs.OpenDir(p, name)
	if errors.Is(err, unix.ENOENT) {
		return Amount{}, nil
	}
	if err != nil {
		return Amount{}, err
	}
	var blocks, inodes uint64
	seen, began := 0, time.Now()
	err = sys.Walk{Seen: func(_ string, st *unix.Stat_t) error {
		if st.Uid == uid {
			inodes++
			blocks += uint64(st.Blocks) / namesOf(st)
		}
		if inodes >= most {
			return errMost
		}
		if seen++; seen%batch == 0 {
			err := rest(ctx, began)
			began = time.Now()
			return err
		}
		return context.Cause(ctx)
	}, Unseen: func(string, error) {}}.From(top, name)
	if errors.Is(err, errMost) {
		err = nil
	}
	return Amount{blocks * 512, inodes}, err
}

// namesOf is how many names a file has; those of a directory are its own.
func namesOf(st *unix.Stat_t) uint64 {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return 1
	}
	return max(uint64(st.Nlink), 1)
}

// rest waits so that two walks take a tenth of one CPU.
func rest(ctx context.Context, began time.Time) error {
	timer := time.NewTimer(restFactor * time.Since(began))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
