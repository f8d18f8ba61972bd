package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Unpack makes the tree of a stream in dir, which must be empty, and makes it durable. After an
// error part of the tree may be there.
func Unpack(dir *os.File, in io.Reader, identities string, most Limits) (Summary, error) {
	u, err := newUnpacker(dir)
	if err != nil {
		return Summary{}, fmt.Errorf("cannot unpack: %w", err)
	}
	s, err := read(in, identities, most, u)
	err = errors.Join(err, u.leaveAll())
	if err != nil {
		return s, err
	}
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return s, fmt.Errorf("cannot make the files durable: %w", err)
	}
	return s, nil
}

// Clone makes in to, which must be empty and on the same file system, the tree that an [Unpack] of
// a [Pack] of dir would make. The two share the content of their files (ioctl_ficlone(2)), which
// neither sees of the other after that: the time it takes depends on how many files there are. It
// leaves out what Pack does. After an error part of the tree may be there. meter may be nil.
func Clone(dir, to *os.File, meter *Meter) (Summary, error) {
	u, err := newUnpacker(to)
	if err != nil {
		return Summary{}, fmt.Errorf("cannot clone: %w", err)
	}
	p := newPacker(u, meter)
	err = p.tree(dir)
	return p.s, errors.Join(err, u.leaveAll())
}

// unpacker is the tree that makes each entry by its one name in the directory that is open.
type unpacker struct{ descent }

func newUnpacker(dir *os.File) (*unpacker, error) {
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("the directory is not empty: %w", chat.ErrExists), err)
	}
	return &unpacker{newDescent(dir)}, nil
}

func cannotMake(e entry, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot unpack %s: %w", chat.Quote(e.path), err)
}

func (u *unpacker) add(e entry, c *content) (err error) {
	switch e.kind {
	case typeDirectory:
		return cannotMake(e, u.enter(e))
	case typeHardLink:
		return cannotMake(e, u.hardLink(e))
	case typeFile:
		err = u.file(e, c)
	case typeSymlink:
		err = unix.Symlinkat(e.target, u.fd(), e.name())
	case typeFIFO:
		if err = unix.Mkfifoat(u.fd(), e.name(), 0o600); err == nil {
			err = unix.Fchmodat(u.fd(), e.name(), e.mode, 0)
		}
	}
	if err == nil {
		err = u.setTime(e)
	}
	return cannotMake(e, err)
}

func (u *unpacker) enter(e entry) error {
	if err := unix.Mkdirat(u.fd(), e.name(), 0o700); err != nil {
		return err
	}
	st, err := u.stat(e.name())
	if err != nil {
		return err
	}
	l, err := u.open(strings.Clone(e.name()), &st)
	if err != nil {
		return err
	}
	l.mode, l.changed, l.modified = e.mode, true, e.modified
	u.down(l)
	return setAttributes(l.dir, e)
}

// leave gives a directory its mode and time, which making its entries would have changed.
func (u *unpacker) leave() error {
	left, _, err := u.up()
	e := entry{path: left.name, modified: left.modified}
	if err == nil {
		err = u.setTime(e)
	}
	return cannotMake(e, err)
}

func setAttributes(f *os.File, e entry) error {
	for name, value := range e.attrs {
		if err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0); err != nil {
			return fmt.Errorf("cannot set its attribute %s: %w", chat.Quote(name), err)
		}
	}
	return nil
}

func (u *unpacker) setTime(e entry) error {
	at, err := unix.TimeToTimespec(e.modified)
	if err != nil {
		return err
	}
	omit := unix.Timespec{Nsec: unix.UTIME_OMIT}
	return unix.UtimesNanoAt(u.fd(), e.name(), []unix.Timespec{omit, at}, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) file(e entry, c *content) error {
	fd, err := unix.Openat(u.fd(), e.name(),
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), e.name())
	if err = fill(f, e, c); err == nil {
		err = setAttributes(f, e)
	}
	if err == nil {
		err = unix.Fchmod(fd, e.mode) // last: a mode without the right to write closes the attributes
	}
	return errors.Join(err, f.Close())
}

// fill shares the content of a file, or writes that of a stream with holes between the pieces.
func fill(f *os.File, e entry, c *content) error {
	if c.file != nil {
		err := unix.IoctlFileClone(int(f.Fd()), int(c.file.Fd()))
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("the file system has no reflinks: %w: %w", err, chat.ErrUnsupported)
		}
		return err
	}
	for _, x := range c.pieces {
		if _, err := f.Seek(x.at, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(f, c, x.size); err != nil {
			return err
		}
	}
	if e.sparse {
		return f.Truncate(e.size)
	}
	return nil
}

// hardLink links to a file of this tree. It walks there by directories alone.
func (u *unpacker) hardLink(e entry) (err error) {
	to := newDescent(u.levels[0].dir)
	defer func() { err = errors.Join(err, to.leaveAll()) }()
	target := e.target
	for name, rest, more := strings.Cut(target, "/"); more; name, rest, more = strings.Cut(rest, "/") {
		st, err := to.stat(name)
		if err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return chat.Invalid("its target leads through %s, which is no directory", chat.Quote(name))
		}
		dir, err := to.open(name, &st)
		if err != nil {
			return err
		}
		to.down(dir)
		target = rest
	}
	if st, err := to.stat(target); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.Join(err, chat.Invalid("it links to what is no file"))
	}
	return unix.Linkat(to.fd(), target, u.fd(), e.name(), 0)
}
