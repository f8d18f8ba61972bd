package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// tries is how often a path that changes under the tool is walked again.
const tries = 16

// again repeats f until the file that it opened is the one that it checked.
func again(f func() error) error {
	var err error
	for range tries {
		if err = f(); !errors.Is(err, errMoved) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", err, chat.ErrBusy)
}

// notRegular is a file of another type.
type notRegular struct{ what string }

func (n *notRegular) Error() string { return "it is a " + n.what + ", not a regular file" }
func (n *notRegular) Unwrap() error { return chat.ErrInvalid }

func checkRegular(mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFLNK:
		return errMoved // the walk found no link here
	case unix.S_IFDIR:
		return &notRegular{"directory"}
	case unix.S_IFIFO:
		return &notRegular{"FIFO"}
	case unix.S_IFSOCK:
		return &notRegular{"socket"}
	}
	return &notRegular{"device"}
}

// stat looks at the name without opening it. A missing directory is ENOENT too.
func (p *place) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if len(p.missing) > 0 {
		return st, unix.ENOENT
	}
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// open opens the regular file at the place, and verifies that it still has the checked name. It
// checks the type first, because opening has effects on some devices, and again afterwards.
func (p *place) open(flags int) (*os.File, unix.Stat_t, error) {
	st, err := p.stat()
	if err == nil {
		err = p.checkFile(st)
	}
	if err != nil {
		return nil, st, err
	}
	fd, err := openat(p.dir, p.name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
		return nil, st, errMoved // it was a regular file a moment ago
	case err != nil:
		return nil, st, err
	}
	f, err := p.opened(fd, &st)
	return f, st, err
}

// opened checks type, name and links of fd, and closes it on an error.
func (p *place) opened(fd int, st *unix.Stat_t) (*os.File, error) {
	err := unix.Fstat(fd, st)
	if err == nil {
		err = p.checkFile(*st)
	}
	if err == nil {
		err = checkName(fd, p.real)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.real), nil
}

// checkName verifies that fd has the name that was checked.
func checkName(fd int, want string) error {
	name, err := nameOf(fd)
	if err == nil && name != want {
		err = errMoved
	}
	return err
}

// checkFile refuses all but regular files, and another owner's file that the chat may have
// hard-linked to this name: a rule may deny its other name. A directory in which the chat may not
// write has no such links.
func (p *place) checkFile(st unix.Stat_t) error {
	err := checkRegular(st.Mode)
	if err != nil || st.Nlink < 2 || p.t.opt.Check == nil || int(st.Uid) == os.Geteuid() ||
		unix.Faccessat(p.dir, ".", unix.W_OK, unix.AT_EACCESS) != nil {
		return err
	}
	return &filewire.Denial{Op: p.op, Path: p.real, Rule: filewire.RuleHardLink, Layer: "files",
		Message: "access denied: the file is another owner's and has another name"}
}

// lock waits at most wait for the lock of an open file, because any process of the chat may hold
// it.
func lock(f *os.File, wait time.Duration) error {
	end := time.Now().Add(wait)
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("another process holds its lock: %w", chat.ErrBusy)
		}
		time.Sleep(pause/2 + rand.N(pause))
	}
}

// openLocked opens and locks the file, and then verifies that the name still leads to it: a rename
// may have replaced it.
func (p *place) openLocked(flags int) (*os.File, unix.Stat_t, error) {
	end := time.Now().Add(p.t.opt.LockWait)
	for {
		f, st, err := p.open(flags)
		if err != nil {
			return nil, st, err
		}
		if err = lock(f, time.Until(end)); err == nil {
			err = p.sameFile(f, &st)
		}
		if err == nil {
			return f, st, nil
		}
		f.Close()
		if !errors.Is(err, errMoved) || time.Now().After(end) {
			return nil, st, err
		}
	}
}

// sameFile verifies that the open file is the one at the place, and updates st.
func (p *place) sameFile(f *os.File, st *unix.Stat_t) error {
	now, err := p.stat()
	if err == nil {
		err = unix.Fstat(int(f.Fd()), st)
	}
	if errors.Is(err, unix.ENOENT) || err == nil && (now.Dev != st.Dev || now.Ino != st.Ino) {
		return errMoved
	}
	return err
}

// newDirMode is the mode of missing directories that are created. The tool's umask takes nothing from
// it, nor from newMode: see enterView in package shims.
const newDirMode = 0o700

// makeDirs creates the missing directories and enters them.
func (p *place) makeDirs() error {
	for len(p.missing) > 0 {
		name := p.missing[0]
		err := unix.Mkdirat(p.dir, name, newDirMode)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if err == nil {
			p.made = append(p.made, madeDir{p.dir, name})
			if err := syncDir(p.dir); err != nil {
				return err
			}
		}
		fd, err := openat(p.dir, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return errMoved
		}
		if err != nil {
			return err
		}
		p.held = append(p.held, fd)
		p.dir, p.dirs, p.missing = fd, path.Join(p.dirs, name), p.missing[1:]
	}
	return checkName(p.dir, p.dirs)
}

// unmake removes the directories that this call created, if they are empty.
func (p *place) unmake() {
	for i := len(p.made) - 1; i >= 0; i-- {
		if unix.Unlinkat(p.made[i].parent, p.made[i].name, unix.AT_REMOVEDIR) != nil {
			return
		}
	}
}

// openDir opens the directory of the place for reading and syncing.
func openDir(dir int) (*os.File, error) {
	fd, err := openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "."), nil
}

func syncDir(dir int) error {
	d, err := openDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(fsync(d), d.Close())
}
