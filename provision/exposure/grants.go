package exposure

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// maxLooked bounds the names that root looks at for one grant.
const maxLooked = 100_000

// expansion is a grant while it is looked up on the host.
type expansion struct {
	h            *Host
	g            chat.Grant
	bound, below *regexp.Regexp
	reach        reacher
	looked       int
	matches      []hostPath
	// sources maps a match to the path of its file, if that is another one.
	sources map[string]string
	notes   []string
}

// expand finds the paths that a grant matches now. It follows no link except those of /sys,
// which the kernel makes.
func (h *Host) expand(g chat.Grant) (*expansion, error) {
	e := &expansion{h: h, g: g, sources: map[string]string{}}
	if g.Own {
		e.addNote("%s: sessions have a %s of their own", g.Pattern, cmp.Or(g.Path, g.Dir))
		return e, nil
	}
	var err1, err2, err3 error
	e.bound, err1 = g.Bound()
	e.below, err2 = g.Below()
	e.reach, err3 = newReacher(g.Pattern)
	if err := errors.Join(err1, err2, err3); err != nil {
		return e, chat.Invalid("cannot use %s: %w", chat.Quote(g.Pattern), err)
	}
	if err := e.begin(); err != nil {
		return e, err
	}
	if len(e.matches) == 0 {
		e.addNote("%s: nothing on this host matches", g.Pattern)
	}
	slices.SortFunc(e.matches, func(a, b hostPath) int { return sys.ComparePaths(a.path, b.path) })
	return e, nil
}

func (e *expansion) addNote(format string, args ...any) {
	const maxNotes = 20
	if len(e.notes) < maxNotes {
		e.notes = append(e.notes, fmt.Sprintf(format, args...))
	}
}

// begin opens the directory that holds all matches, and searches it.
func (e *expansion) begin() error {
	fd, f, err := e.h.open(e.g.Dir)
	if errors.Is(err, errNotThere) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if f.writers != "" {
		return chat.Invalid("cannot use %s: %s may write to %s; want a directory that only root may write to", chat.Quote(e.g.Pattern), f.writers, chat.Quote(e.g.Dir))
	}
	if e.g.Path != "" {
		return e.name(fd, f, path.Base(e.g.Path))
	}
	return e.dir(fd, f)
}

// dir checks every name of a directory below which a path may match.
func (e *expansion) dir(at int, f hostPath) error {
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", chat.Quote(f.path), err)
	}
	d := os.NewFile(uintptr(fd), f.path)
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if e.looked++; e.looked > maxLooked {
				return chat.Invalid("cannot use %s: more than %d names to look at: want a longer literal beginning", chat.Quote(e.g.Pattern), maxLooked)
			}
			if err := e.name(at, f, name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", chat.Quote(f.path), err)
		}
	}
}

// name checks one name of the directory f, and searches it where a path below may match.
func (e *expansion) name(at int, f hostPath, name string) error {
	p := path.Join(f.path, name)
	whole, deeper := e.below.MatchString(p+"/"), e.reach.reaches(p+"/")
	if !whole && !deeper && !e.bound.MatchString(p) {
		return nil
	}
	if chat.Within(p, "/sys") {
		return e.kernelName(p, deeper)
	}
	fd, err := openName(at, name, p)
	if errors.Is(err, errNotThere) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	g, err := look(fd, p)
	switch {
	case err != nil:
		e.addNote("%v", err)
	case g.file && e.bound.MatchString(p) || !g.file && whole:
		return e.match(fd, g)
	case g.file:
	case e.bound.MatchString(p):
		e.addNote("%s: %s is a directory, and %s stands for it without what is in it", e.g.Pattern,
			chat.Quote(p), e.g.Pattern)
	case g.writers != "":
		e.addNote("%s: not looked into %s: %s may write to it", e.g.Pattern, chat.Quote(p), g.writers)
	default:
		return e.dir(fd, g)
	}
	return nil
}

// match adds a path to the grant's matches if it may be exposed.
func (e *expansion) match(fd int, f hostPath) error {
	own := chat.ReservedPath(f.path)
	if own != "" && chat.Within(f.path, own) {
		e.addNote("%s: sessions have a %s of their own", e.g.Pattern, f.path)
		return nil
	}
	err := chat.CheckSource(f.path, e.g.Mode)
	switch {
	case err == nil && own != "":
		err = chat.Invalid("cannot use %s: it stands for %s, which would cover chatd's own %s",
			chat.Quote(e.g.Pattern), chat.Quote(f.path), own)
	case err != nil:
		err = fmt.Errorf("cannot use %s: it stands for %w", chat.Quote(e.g.Pattern), err)
	}
	if err := errors.Join(err, e.h.mayExpose(f.path), kernelFS(fd, f.path)); err != nil {
		return err
	}
	return e.keep(f)
}

func (e *expansion) keep(f hostPath) error {
	if len(e.matches) == chat.MaxGrantMatches {
		return chat.Invalid("cannot use %s: it stands for more than %d paths: want one that stands for fewer, or for their directory", chat.Quote(e.g.Pattern), chat.MaxGrantMatches)
	}
	e.matches = append(e.matches, f)
	return nil
}

// openKernelName follows links beneath root: those of /sys contain "..".
func openKernelName(root int, name string) (fd int, err error) {
	return sys.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
}

// kernelName checks a name of /sys, where the names of devices are links of the kernel to other
// paths of /sys.
func (e *expansion) kernelName(p string, deeper bool) error {
	fd, err := openKernelName(int(e.h.root.Fd()), p[1:])
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", chat.Quote(p), err)
	}
	defer unix.Close(fd)
	source, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || !chat.Within(source, "/sys") {
		return fmt.Errorf("cannot use %s: it leads to %s: %w", chat.Quote(p), chat.Quote(source),
			errors.Join(err, chat.ErrInvalid))
	}
	f, err := look(fd, p)
	switch {
	case err != nil:
		return err
	case f.file && e.bound.MatchString(p):
		e.sources[p] = source
		return e.keep(f)
	case !f.file && (e.below.MatchString(p+"/") || e.bound.MatchString(p)):
		return chat.Invalid("cannot use %s: it stands for the directory %s, and below /sys a grant is single files", chat.Quote(e.g.Pattern), chat.Quote(p))
	case !f.file && deeper:
		return e.dir(fd, f)
	}
	return nil
}
