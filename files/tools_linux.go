package files

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"golang.org/x/sys/unix"
)

// Options limit what the tools may reach. The zero value of each is the strictest.
type Options struct {
	// Workspace is the home: the base of relative paths.
	Workspace string
	// Roots are further directories that belong to the chat, as /tmp.
	Roots []string
	// Unrestricted is restrict_to_workspace: false. Only the caller's check, the kernel and the
	// confinement then restrict the tools.
	Unrestricted bool
	// ReadOutside is allow_read_outside_workspace.
	ReadOutside bool
	// AllowRead and AllowWrite are allow_read_paths and allow_write_paths: regular
	// expressions for physical names outside the roots. A match must end where a
	// name ends: ^/x/allow is /x/allow and what is below it, not /x/allowed-not. A
	// grant to read grants no write, and the reverse.
	AllowRead, AllowWrite []string
	// Check holds the file rules; nil forbids nothing.
	Check Check
	// Rules, if they are set, are compiled into Check by Open, in the view of the caller.
	Rules *Rules
	// MaxBytes bounds a file that is written, and what one stream reads; 0 is [DefaultMaxBytes].
	MaxBytes int64
	// LockWait is how long append_file and edit_file wait for a lock; 0 means [DefaultLockWait].
	LockWait time.Duration
}

// Defaults for zero fields of [Options].
const (
	DefaultMaxBytes = 4 << 30
	DefaultLockWait = 10 * time.Second
)

// Tools are the five tools, opened on their roots. They are safe for concurrent use.
type Tools struct {
	opt         Options
	roots       []*root // the workspace first
	slash       *root   // nil when nothing outside the roots may be reached
	read, write []*regexp.Regexp
}

// root is a directory that paths begin at.
type root struct {
	name string // as it was given, folded
	real string // as the kernel names it
	fd   int
}

// Open opens the roots. It must be called as the chat, in the chat's view.
func Open(opt Options) (*Tools, error) {
	t := &Tools{opt: opt}
	if t.opt.MaxBytes == 0 {
		t.opt.MaxBytes = DefaultMaxBytes
	}
	if t.opt.LockWait == 0 {
		t.opt.LockWait = DefaultLockWait
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tools) open() (err error) {
	if t.opt.Rules != nil {
		if t.opt.Check, err = t.opt.Rules.check(t.opt.Workspace); err != nil {
			return err
		}
	}
	if t.read, err = compile("allow_read_paths", t.opt.AllowRead); err != nil {
		return err
	}
	if t.write, err = compile("allow_write_paths", t.opt.AllowWrite); err != nil {
		return err
	}
	for _, name := range append([]string{t.opt.Workspace}, t.opt.Roots...) {
		r, err := openRoot(name)
		if err != nil {
			return err
		}
		t.roots = append(t.roots, r)
	}
	if t.opt.Unrestricted || t.opt.ReadOutside || len(t.read)+len(t.write) > 0 {
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
		return nil, invalid("cannot open root %s: want an absolute path", chat.Quote(name))
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
	var buf [2 * MaxPath]byte
	n, err := unix.Readlink(fdName(fd), buf[:])
	if err != nil {
		return "", fmt.Errorf("cannot ask what was opened, %s: %w: %w", fdName(fd), err, chat.ErrUnsupported)
	}
	return string(buf[:n]), nil
}

// compile binds each pattern to the end of a name, or of a directory's name.
func compile(key string, patterns []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for _, p := range patterns {
		re, err := chat.BoundPattern(p)
		if err != nil {
			return nil, invalid("cannot use %s %s: %w", key, chat.Quote(p), err)
		}
		out = append(out, re)
	}
	return out, nil
}

// fold makes a caller's path absolute, ~ at its head the workspace, and removes "." and ".." lexically, without regard to links.
func (t *Tools) fold(p string) string {
	return filerules.Fold(t.roots[0].name, t.roots[0].name, p)
}

// reaches reports whether name is in a root, or op may leave the roots for name.
func (t *Tools) reaches(op Op, name string) bool {
	if t.opt.Unrestricted {
		return true
	}
	for _, r := range t.roots {
		if chat.Within(name, r.real) || chat.Within(name, r.name) {
			return true
		}
	}
	granted := func(all []*regexp.Regexp) bool {
		for _, re := range all {
			if re.MatchString(name) {
				return true
			}
		}
		return false
	}
	canRead := t.opt.ReadOutside || granted(t.read)
	switch op {
	case Read:
		return canRead
	case Edit:
		return canRead && granted(t.write)
	}
	return granted(t.write)
}

// check checks one name. A call makes all its checks before it changes anything, because a denial
// ends it.
func (t *Tools) check(op Op, name string) error {
	if t.opt.Check == nil {
		return nil
	}
	d := t.opt.Check(op, name)
	if d == nil {
		return nil
	}
	out := *d
	if out.Op == "" {
		out.Op = op
	}
	if out.Path == "" {
		out.Path = name
	}
	return &out
}
