package files

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links a path may go through, path_resolution(7).
const maxLinks = 40

// errMoved means that the opened file is no longer the checked one.
var errMoved = errors.New("the path changed while it was used")

// place is where a path leads: a name in an open directory. The path is not looked up again.
type place struct {
	t      *Tools
	op     filewire.Op
	folded string // as the caller calls it
	real   string // the physical name
	dir    int    // O_PATH; the root's or one of held
	dirs   string // the physical name of dir
	name   string // one component, or "." for a root itself
	// missing are directories on the way that do not exist yet; name is in the last.
	missing []string
	held    []int
	made    []madeDir
}

// madeDir is a directory that this call made.
type madeDir struct {
	parent int
	name   string
}

func (p *place) close() {
	for _, fd := range p.held {
		unix.Close(fd)
	}
	p.held = nil
}

// find folds and walks a path and checks both its names. It accesses nothing before the folded name
// is allowed. A path that does not exist has a place too, if it could be created.
func (t *Tools) find(op filewire.Op, caller string) (*place, error) {
	folded := t.fold(caller)
	if !t.grants.Reaches(op, folded) {
		return nil, outside(op, folded, "access denied: path is outside the workspace")
	}
	if err := t.check(op, folded); err != nil {
		return nil, err
	}
	w := walker{t: t, op: op}
	p, err := w.walk(folded)
	if err != nil {
		w.drop()
		return nil, err
	}
	// The walk has checked this for every link that left a root; this checks the final name.
	if !t.grants.Reaches(op, p.real) {
		p.close()
		return nil, outside(op, p.real, "access denied: symlink resolves outside workspace")
	}
	if p.real != folded {
		if err := t.check(op, p.real); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func outside(op filewire.Op, name, message string) *filewire.Denial {
	return &filewire.Denial{Op: op, Path: name, Rule: filewire.RuleWorkspace, Layer: "files",
		Message: message}
}

// walker follows a path from a root, with every directory on the way open, so that ".." in a link
// leads back along the walk, even if a directory was moved meanwhile.
type walker struct {
	t     *Tools
	op    filewire.Op
	base  *root
	held  []int    // below base, outermost first
	names []string // their names
	rest  []string // still to go
	links int
}

func (w *walker) drop() {
	for _, fd := range w.held {
		unix.Close(fd)
	}
	w.held, w.names = nil, nil
}

func (w *walker) dir() int {
	if len(w.held) == 0 {
		return w.base.fd
	}
	return w.held[len(w.held)-1]
}

func (w *walker) here() string {
	if len(w.names) == 0 {
		return w.base.real
	}
	return strings.TrimSuffix(w.base.real, "/") + "/" + strings.Join(w.names, "/")
}

// components splits a path, without empty components and ".".
func components(name string) []string {
	var out []string
	for c := range strings.SplitSeq(name, "/") {
		if c != "" && c != "." {
			out = append(out, c)
		}
	}
	return out
}

func (w *walker) walk(folded string) (*place, error) {
	if err := w.enter(components(folded)); err != nil {
		return nil, err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if name == ".." {
			if err := w.up(); err != nil {
				return nil, err
			}
			continue
		}
		target, err := readlink(w.dir(), name)
		switch {
		case err == nil:
			err = w.follow(target)
		case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT): // not: it is no link
		case len(w.rest) == 0:
			return w.place(folded, name, nil), nil
		default:
			var missing []string
			if missing, err = w.into(name); missing != nil {
				return w.place(folded, missing[len(missing)-1], missing[:len(missing)-1]), nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return w.place(folded, ".", nil), nil
}

func (w *walker) place(folded, name string, missing []string) *place {
	p := &place{t: w.t, op: w.op, folded: folded, dir: w.dir(), dirs: w.here(), name: name, missing: missing,
		held: w.held}
	p.real = path.Join(append(append([]string{p.dirs}, missing...), name)...)
	return p
}

// enter begins at the innermost root that an absolute path is in.
func (w *walker) enter(parts []string) error {
	w.drop()
	w.base, w.rest = nil, nil
	deepest := -1
	for _, r := range w.t.roots {
		for _, name := range []string{r.name, r.real} {
			c := components(name)
			if len(c) > deepest && len(c) <= len(parts) && slices.Equal(parts[:len(c)], c) {
				w.base, deepest = r, len(c)
			}
		}
	}
	if w.base != nil {
		w.rest = parts[deepest:]
		return nil
	}
	return w.leave(parts)
}

// leave begins at / for a path outside every root. Only granted names are looked up there, so that
// the chat does not learn whether others exist.
func (w *walker) leave(parts []string) error {
	to := path.Join(append([]string{"/"}, parts...)...)
	if w.t.slash == nil || !w.t.grants.Reaches(w.op, to) {
		if w.links > 0 {
			return outside(w.op, to, "access denied: symlink resolves outside workspace")
		}
		return outside(w.op, to, "access denied: path is outside the workspace")
	}
	w.base, w.rest = w.t.slash, parts
	return nil
}

// up goes back one directory; from the top of a root it leaves it.
func (w *walker) up() error {
	if n := len(w.held); n > 0 {
		unix.Close(w.held[n-1])
		w.held, w.names = w.held[:n-1], w.names[:n-1]
		return nil
	}
	to := path.Dir(w.base.real)
	for len(w.rest) > 0 && w.rest[0] == ".." {
		to, w.rest = path.Dir(to), w.rest[1:]
	}
	return w.enter(append(components(to), w.rest...))
}

// into opens a directory on the way, which was no link a moment ago. It returns the components that
// are missing from here on.
func (w *walker) into(name string) (missing []string, err error) {
	fd, err := openat(w.dir(), name, unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case err == nil:
		w.held, w.names = append(w.held, fd), append(w.names, name)
	case errors.Is(err, unix.ENOENT) && !slices.Contains(w.rest, ".."):
		return append([]string{name}, w.rest...), nil
	case errors.Is(err, unix.ENOTDIR):
		if _, e := readlink(w.dir(), name); e == nil {
			err = errMoved
		}
	}
	return nil, err
}

func (w *walker) follow(target string) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	parts := append(components(target), w.rest...)
	if path.IsAbs(target) {
		return w.enter(parts)
	}
	if w.base == w.t.slash && !w.t.grants.Reaches(w.op, path.Join(append([]string{w.here()}, parts...)...)) {
		return outside(w.op, w.here(), "access denied: symlink resolves outside workspace")
	}
	w.rest = parts
	return nil
}

// openat opens one component and never what a link points to.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func readlink(dir int, name string) (string, error) {
	var buf [filewire.MaxPath]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
