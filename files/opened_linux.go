package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"time"

	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// tries is how often a path that changes under the tool is walked again.
const tries = 16

// again does f until what it opened is what it judged.
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
		return errMoved // there was none when it was walked
	case unix.S_IFDIR:
		return &notRegular{"directory"}
	case unix.S_IFIFO:
		return &notRegular{"FIFO"}
	case unix.S_IFSOCK:
		return &notRegular{"socket"}
	}
	return &notRegular{"device"}
}

// stat looks at the name without opening it. ENOENT also where the directory is missing.
func (p *place) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if len(p.missing) > 0 {
		return st, unix.ENOENT
	}
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// open opens the file that is at the place, a regular one, and makes sure that it
// still has the name that was judged. The type is looked at first, because
// opening alone has effects on some devices, and again afterwards.
func (p *place) open(flags int) (*os.File, unix.Stat_t, error) {
	st, err := p.stat()
	if err == nil {
		err = checkRegular(st.Mode)
	}
	if err == nil {
		err = p.checkLinks(st)
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

// opened looks at what was opened; it closes it when that is not what it should be.
func (p *place) opened(fd int, st *unix.Stat_t) (*os.File, error) {
	err := unix.Fstat(fd, st)
	if err == nil {
		err = checkRegular(st.Mode)
	}
	if err == nil {
		err = p.checkLinks(*st)
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

// checkName wants what is open to have the name that was judged.
func checkName(fd int, want string) error {
	name, err := nameOf(fd)
	if err == nil && name != want {
		err = errMoved
	}
	return err
}

// checkLinks refuses a file of somebody else that the chat may have linked to
// this name: under its other name a rule may forbid it. In a directory where the
// chat may not write, the names are not the chat's.
func (p *place) checkLinks(st unix.Stat_t) error {
	if st.Nlink < 2 || p.t.opt.Check == nil || int(st.Uid) == os.Geteuid() {
		return nil
	}
	if unix.Faccessat(p.dir, ".", unix.W_OK, unix.AT_EACCESS) != nil {
		return nil
	}
	return &Denial{Op: p.op, Path: p.real, Rule: RuleHardLink, Layer: "files",
		Message: "access denied: the file is another owner's and has another name"}
}

// lock waits for the lock of an open file, but not for ever: any process of the
// chat may hold it.
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

// openLocked opens the file and locks it, and makes sure that it is the file
// which still has the name then: a rename may have put another there.
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

// sameFile wants the open file to be the one at the place, and looks at it again.
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

// newDirMode is the mode of a directory that is made on the way.
const newDirMode = 0o700

// makeDirs makes what is missing of the way and goes there.
func (p *place) makeDirs() error {
	for len(p.missing) > 0 {
		name := p.missing[0]
		err := unix.Mkdirat(p.dir, name, newDirMode)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		isNew := err == nil
		if isNew {
			p.made = append(p.made, made{p.dir, name})
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
		if isNew {
			if err := pastUmask(fd); err != nil {
				return err
			}
		}
	}
	return checkName(p.dir, p.dirs)
}

// pastUmask gives a new directory its mode where the umask took of it.
// fchmod(2) does not take an O_PATH descriptor.
func pastUmask(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o777 == newDirMode {
		return err
	}
	return unix.Chmod(fdName(fd), newDirMode)
}

// unmake removes the directories that this call made, if nothing is in them.
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
