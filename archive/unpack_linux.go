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
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return Summary{}, errors.Join(
			fmt.Errorf("cannot unpack: the directory is not empty: %w", chat.ErrExists), err)
	}
	u := &unpacker{root: dir}
	defer u.close()
	s, err := read(in, identities, most, u)
	if err != nil {
		return s, err
	}
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return s, fmt.Errorf("cannot make the files durable: %w", err)
	}
	return s, nil
}

// unpacker makes each entry by its one name in the directory that is open.
type unpacker struct {
	root *os.File
	open []openDir
}

type openDir struct {
	file *os.File
	entry
}

func (u *unpacker) close() {
	for _, d := range u.open {
		_ = d.file.Close() // after an error: nothing was written to it
	}
}

// in is the directory that is open.
func (u *unpacker) in() int {
	if len(u.open) == 0 {
		return int(u.root.Fd())
	}
	return int(u.open[len(u.open)-1].file.Fd())
}

func (e entry) name() string { return e.path[strings.LastIndexByte(e.path, '/')+1:] }

func cannotMake(e entry, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot unpack %s: %w", chat.Quote(e.path), err)
}

func (u *unpacker) enter(e entry) error {
	if err := unix.Mkdirat(u.in(), e.name(), 0o700); err != nil {
		return cannotMake(e, err)
	}
	fd, err := unix.Openat(u.in(), e.name(),
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return cannotMake(e, err)
	}
	u.open = append(u.open, openDir{os.NewFile(uintptr(fd), e.name()), e})
	return nil
}

// leave gives a directory its mode and time, which making its entries would have changed.
func (u *unpacker) leave() error {
	d := u.open[len(u.open)-1]
	err := finish(d.file, d.entry)
	u.open = u.open[:len(u.open)-1]
	if err = errors.Join(err, d.file.Close()); err == nil {
		err = u.setTime(d.entry)
	}
	return cannotMake(d.entry, err)
}

// finish sets the attributes and then the mode: a mode without the right to write closes both.
func finish(f *os.File, e entry) error {
	for name, value := range e.attrs {
		if err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0); err != nil {
			return fmt.Errorf("cannot set its attribute %s: %w", chat.Quote(name), err)
		}
	}
	return unix.Fchmod(int(f.Fd()), e.mode)
}

func (u *unpacker) setTime(e entry) error {
	at, err := unix.TimeToTimespec(e.modified)
	if err != nil {
		return err
	}
	omit := unix.Timespec{Nsec: unix.UTIME_OMIT}
	return unix.UtimesNanoAt(u.in(), e.name(), []unix.Timespec{omit, at}, unix.AT_SYMLINK_NOFOLLOW)
}

func (u *unpacker) file(e entry, pieces []extent, content io.Reader) error {
	return u.make(e, func(f *os.File) error { return fill(f, e, pieces, content) })
}

// make makes a file, and calls fill for its content.
func (u *unpacker) make(e entry, fill func(*os.File) error) error {
	fd, err := unix.Openat(u.in(), e.name(),
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return cannotMake(e, err)
	}
	f := os.NewFile(uintptr(fd), e.name())
	err = fill(f)
	if err == nil {
		err = finish(f, e)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = u.setTime(e)
	}
	return cannotMake(e, err)
}

// fill writes the pieces, and leaves holes between them.
func fill(f *os.File, e entry, pieces []extent, content io.Reader) error {
	for _, x := range pieces {
		if _, err := f.Seek(x.at, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(f, content, x.size); err != nil {
			return err
		}
	}
	if e.sparse {
		return f.Truncate(e.size)
	}
	return nil
}

func (u *unpacker) other(e entry) error {
	var err error
	switch e.kind {
	case typeSymlink:
		err = unix.Symlinkat(e.target, u.in(), e.name())
	case typeFIFO:
		if err = unix.Mkfifoat(u.in(), e.name(), 0o600); err == nil {
			err = unix.Fchmodat(u.in(), e.name(), e.mode, 0)
		}
	default:
		return cannotMake(e, u.hardLink(e))
	}
	if err == nil {
		err = u.setTime(e)
	}
	return cannotMake(e, err)
}

// hardLink links to a file of this tree. It walks there by directories alone.
func (u *unpacker) hardLink(e entry) (err error) {
	dirs := strings.Split(e.target, "/")
	at, undo := u.root, []func() error{}
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	for _, name := range dirs[:len(dirs)-1] {
		var st unix.Stat_t
		if err := unix.Fstatat(int(at.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return fmt.Errorf("its target leads through %s, which is no directory: %w",
				chat.Quote(name), chat.ErrInvalid)
		}
		next, restore, err := openOwn(at, name, &st)
		if err != nil {
			return err
		}
		at, undo = next, append(undo, next.Close, restore)
	}
	target := dirs[len(dirs)-1]
	var st unix.Stat_t
	if err := unix.Fstatat(int(at.Fd()), target, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("it links to what is no file: %w", chat.ErrInvalid)
	}
	return unix.Linkat(int(at.Fd()), target, u.in(), e.name(), 0)
}
