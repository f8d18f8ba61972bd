package files

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// Tools are the five tools, opened on their roots. They are safe for concurrent use.
type Tools struct {
	opt    filewire.Options
	roots  []*root // the workspace first
	slash  *root   // nil when nothing outside the roots may be reached
	grants filewire.Grants
}

// root is a directory that paths begin at.
type root struct {
	name string // as it was given, folded
	real string // as the kernel names it
	fd   int
}

// Open opens the roots. It must be called as the chat, in the chat's view.
func Open(opt filewire.Options) (*Tools, error) {
	t := &Tools{opt: opt}
	t.opt.MaxBytes = cmp.Or(opt.MaxBytes, filewire.DefaultMaxBytes)
	t.opt.LockWait = cmp.Or(opt.LockWait, filewire.DefaultLockWait)
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tools) open() (err error) {
	if t.opt.Rules != nil {
		if t.opt.Check, err = t.opt.Rules.Check(t.opt.Workspace); err != nil {
			return err
		}
	}
	if t.grants, err = t.opt.Grants(); err != nil {
		return err
	}
	for _, name := range append([]string{t.opt.Workspace}, t.opt.Roots...) {
		r, err := openRoot(name)
		if err != nil {
			return err
		}
		t.roots = append(t.roots, r)
		t.grants.Roots = append(t.grants.Roots, r.real)
	}
	if t.opt.Unrestricted || t.opt.ReadOutside || len(t.opt.AllowRead)+len(t.opt.AllowWrite) > 0 {
		t.slash, err = openRoot("/")
	}
	return err
}

// Close closes the roots.
func (t *Tools) Close() error {
	var errs []error
	for _, r := range append(t.roots, t.slash) {
		if r != nil {
			errs = append(errs, unix.Close(r.fd))
		}
	}
	t.roots, t.slash = nil, nil
	return errors.Join(errs...)
}

func openRoot(name string) (*root, error) {
	if !path.IsAbs(name) {
		return nil, filewire.Invalid("cannot open root %s: want an absolute path", chat.Quote(name))
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open root %s: %w", chat.Quote(name), err)
	}
	real, err := nameOf(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &root{name: path.Clean(name), real: real, fd: fd}, nil
}

// fdName is the name of an open file in /proc, proc_pid_fd(5).
func fdName(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// nameOf is the kernel's name of fd.
func nameOf(fd int) (string, error) {
	var buf [2 * filewire.MaxPath]byte
	n, err := unix.Readlink(fdName(fd), buf[:])
	if err != nil {
		return "", fmt.Errorf("cannot ask what was opened, %s: %w: %w", fdName(fd), err, chat.ErrUnsupported)
	}
	return string(buf[:n]), nil
}

// fold makes a caller's path absolute, ~ at its head the workspace, and removes "." and ".."
// lexically, without regard to links.
func (t *Tools) fold(p string) string {
	return filerules.Fold(t.roots[0].name, t.roots[0].name, p)
}

// check checks one name. A call makes all its checks before it changes anything, because a denial
// ends it.
func (t *Tools) check(op filewire.Op, name string) error {
	if t.opt.Check == nil {
		return nil
	}
	if d := t.opt.Check(op, name); d != nil {
		return d
	}
	return nil
}
