package archive

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Clone makes in to, which must be empty and on the same file system, the tree that an [Unpack] of
// a [Pack] of dir would make. The two share the content of their files (ioctl_ficlone(2)), which
// neither sees of the other after that: the time it takes depends on how many files there are. It
// leaves out what Pack does. After an error part of the tree may be there. meter may be nil.
func Clone(dir, to *os.File, meter *Meter) (Summary, error) {
	if _, err := to.Readdirnames(1); !errors.Is(err, io.EOF) {
		return Summary{}, errors.Join(
			fmt.Errorf("cannot clone: the directory is not empty: %w", chat.ErrExists), err)
	}
	c := &cloner{unpacker: unpacker{newDescent(to)}}
	p := newPacker(c, meter)
	err := p.tree(dir)
	return p.s, errors.Join(err, c.leaveAll())
}

// cloner makes the entries that a packer finds.
type cloner struct {
	unpacker
	file entry // that was begun
}

func (c *cloner) begin(e entry, _ []extent) error {
	switch e.kind {
	case typeDirectory:
		return c.enter(e)
	case typeFile:
		c.file = e
		return nil
	}
	return c.other(e)
}

func (c *cloner) content(f *os.File, pieces []extent) (stored int64, err error) {
	for _, x := range pieces {
		stored += x.size
	}
	return stored, c.make(c.file, func(to *os.File) error {
		err := unix.IoctlFileClone(int(to.Fd()), int(f.Fd()))
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("the file system has no reflinks: %w: %w", err, chat.ErrUnsupported)
		}
		return err
	})
}
