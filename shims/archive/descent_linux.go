package archive

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxOpen is how many directories of a path are open simultaneously: a chat may have 64 descriptors,
// and a clone goes down three paths.
const maxOpen = 8

// descent is the path of directories from a root to the one that is read or written. The root and
// the innermost of them are open. The others are opened again by "..", so that neither the depth of
// a tree nor PATH_MAX is a bound.
type descent struct {
	levels []level // the first is the root
}

// level is one directory of a descent, or a file.
type level struct {
	dir  *os.File // nil if it is not open
	id   inode
	name string
	// mode is what it gets when it is closed, if it has another one now (changed).
	mode     uint32
	changed  bool
	modified time.Time // for an unpacker
	names    []string  // for a packer: what was read of it and not packed
	at       int64     // and where that was read
}

type inode struct{ dev, ino uint64 }

func newDescent(root *os.File) descent { return descent{levels: []level{{dir: root}}} }

// last is the innermost directory, which is open.
func (d *descent) last() *level { return &d.levels[len(d.levels)-1] }

func (d *descent) fd() int { return int(d.last().dir.Fd()) }

// stat looks at a name in the last directory.
func (d *descent) stat(name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// open opens the file or directory of a name. If its owner may not read it, its mode is changed
// until it is closed.
func (d *descent) open(name string, st *unix.Stat_t) (level, error) {
	want, flags := uint32(0o400), unix.O_NOFOLLOW|unix.O_NONBLOCK
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want, flags = 0o500, flags|unix.O_DIRECTORY
	}
	l := level{name: name, id: inode{st.Dev, st.Ino}, mode: st.Mode & 0o7777}
	set := func(mode uint32) error { return unix.Fchmodat(d.fd(), name, mode, 0) }
	if l.changed = l.mode&want != want; l.changed {
		if err := set(l.mode | want); err != nil {
			return l, fmt.Errorf("cannot make it readable: %w", err)
		}
	}
	err := l.open(d.fd(), name, flags)
	if err != nil && l.changed {
		err = errors.Join(err, set(l.mode))
	}
	return l, err
}

// open opens a name that must be what it was.
func (l *level) open(at int, name string, flags int) error {
	fd, err := unix.Openat(at, name, flags|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || l.id != (inode{st.Dev, st.Ino}) {
		return errors.Join(err, changed(), unix.Close(fd))
	}
	l.dir = os.NewFile(uintptr(fd), l.name)
	return nil
}

func (l *level) close() (err error) {
	if l.changed {
		err = unix.Fchmod(int(l.dir.Fd()), l.mode)
	}
	return errors.Join(err, l.dir.Close())
}

// down goes into a directory that was opened in the last one.
func (d *descent) down(l level) {
	d.levels = append(d.levels, l)
	if far := len(d.levels) - maxOpen; far > 0 && d.levels[far].dir != nil {
		outer := &d.levels[far]
		_ = outer.dir.Close() // nothing was written to it
		outer.dir, outer.names = nil, nil
	}
}

// up leaves the last directory. again is true if its parent was not open.
func (d *descent) up() (left level, again bool, err error) {
	left = *d.last()
	d.levels = d.levels[:len(d.levels)-1]
	if again = d.last().dir == nil; again {
		err = d.last().open(int(left.dir.Fd()), "..", unix.O_DIRECTORY)
	}
	return left, again, errors.Join(err, left.close())
}

// leaveAll leaves all but the root, or as many as are where they were.
func (d *descent) leaveAll() (err error) {
	for len(d.levels) > 1 && d.last().dir != nil {
		_, _, left := d.up()
		err = errors.Join(err, left)
	}
	return err
}
