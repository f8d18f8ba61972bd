package unshare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// layerOptions keep the extended attributes of a layer from redirecting a lookup.
const layerOptions = "redirect_dir=nofollow,metacopy=off,index=off,xino=off"

// SourcePrefix begins the source of each overlay in mountinfo (proc_pid_mountinfo(5)).
// Two overlays of one source show one tree.
const SourcePrefix = "chatd-"

// Stage mounts a read-only overlay of its own over each of the shared trees, in the mount
// namespace of the calling thread, which must not be the host's. The mounts do not propagate
// to other namespaces. Stage skips a missing path, and returns as asTheyAre the paths that
// cannot have an overlay on this host.
func Stage(t Trees) (asTheyAre []string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("cannot keep mounts to a session: %w", err)
	}
	if err := t.narrow(); err != nil {
		return nil, err
	}
	sources, err := t.sources()
	if err != nil {
		return nil, err
	}
	// A mount of its own, so that one call detaches all mounts in it.
	if err := unix.Mount(t.Dir, t.Dir, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("cannot prepare %s: %w", t.Dir, err)
	}
	s := stage{trees: t, at: map[string]string{}, through: map[string]int{}}
	defer s.close()
	places := t.plan(sources)
	for _, p := range places { // all are opened and attached before one hides another
		if err := s.prepare(p); err != nil {
			return nil, err
		}
	}
	for _, p := range places {
		if err := s.bind(p); err != nil {
			return nil, err
		}
		if p.lower == "" && !t.goesThrough(p.path) {
			asTheyAre = append(asTheyAre, p.path)
		}
	}
	return asTheyAre, t.detach()
}

// detach unmounts the overlays in Dir. bubblewrap reads the list of all mounts for each mount that
// it makes, and the overlays stay where they are bound.
func (t Trees) detach() error {
	return errors.Join(unix.Chdir("/"), unmountTree(t.Dir))
}

// sources are the shared paths, and the mounts below them, by their real names. A path in one
// that is writable to all is shared on purpose.
func (t Trees) sources() ([]source, error) {
	var all []source
	add := func(p string) error {
		real, err := filepath.EvalSymlinks(p)
		var fi os.FileInfo
		if err == nil {
			fi, err = os.Lstat(real)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
		}
		if !t.goesThrough(real) {
			all = append(all, source{real, fi.IsDir()})
		}
		return nil
	}
	for _, p := range t.Shared {
		if err := add(p); err != nil {
			return nil, err
		}
	}
	all = t.gather(all)
	for _, s := range all[:len(all):len(all)] {
		if !s.dir {
			continue
		}
		for _, m := range t.below(s.path) {
			if err := add(m); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// stage holds the opened paths, and where each layer is attached.
type stage struct {
	trees   Trees
	at      map[string]string // by lower
	through map[string]int    // descriptors of directly bound paths, by path
}

func (s *stage) close() {
	for _, fd := range s.through {
		unix.Close(fd)
	}
}

// prepare attaches the overlay that shows p, or opens p itself.
func (s *stage) prepare(p place) error {
	if p.lower == "" {
		fd, err := unix.Open(p.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", chat.Quote(p.path), err)
		}
		s.through[p.path] = fd
		return nil
	}
	if s.at[p.lower] != "" {
		return nil
	}
	dir := filepath.Join(s.trees.Dir, strconv.Itoa(len(s.at)))
	if err := s.trees.attach(p.lower, dir); err != nil {
		return fmt.Errorf("cannot put an overlay over %s: %w", chat.Quote(p.lower), err)
	}
	s.at[p.lower] = dir
	return nil
}

// attach mounts an overlay with that lower layer at dir. Every session's mountinfo shows the names
// of the layers. attach binds them to names that are the same for all and that reveal nothing of
// the host.
func (t Trees) attach(lower, dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(lower, &st); err != nil {
		return err
	}
	empty, err := t.chooseEmpty(lower, st.Dev)
	if err != nil {
		return err
	}
	for _, bound := range [][2]string{{lower, dir + "l"}, {empty, dir + "e"}, {"", dir}} {
		err := os.Mkdir(bound[1], 0o700)
		if errors.Is(err, os.ErrExist) {
			err = nil
		}
		if err == nil && bound[0] != "" {
			err = unix.Mount(bound[0], bound[1], "", unix.MS_BIND, "")
		}
		if err != nil {
			return err
		}
	}
	if err := unix.Chdir(t.Dir); err != nil {
		return err
	}
	base := filepath.Base(dir)
	source := fmt.Sprintf("%s%x-%x", SourcePrefix, st.Dev, st.Ino)
	layers := fmt.Sprintf("lowerdir=%sl:%se,%s", base, base, layerOptions)
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOATIME | unix.MS_NOSUID)
	if !chat.Within(lower, "/dev") {
		flags |= unix.MS_NODEV // bubblewrap would set it on each path that it binds
	}
	return unix.Mount(source, base, "overlay", flags, layers)
}

// chooseEmpty returns an empty directory for the second layer, on dev if there is one.
func (t Trees) chooseEmpty(lower string, dev uint64) (string, error) {
	for _, e := range t.Empty {
		var st unix.Stat_t
		if err := unix.Lstat(e, &st); err == nil && st.Dev == dev && !chat.Within(e, lower) {
			return e, nil
		}
	}
	if e := t.emptyFor(lower); e != "" {
		return e, nil
	}
	return "", fmt.Errorf("every empty directory lies in it: %w", chat.ErrUnsupported)
}

// bind mounts over p the overlay that shows it, or p itself.
func (s *stage) bind(p place) error {
	from, flags := fmt.Sprintf("/proc/self/fd/%d", s.through[p.path]), uintptr(unix.MS_BIND|unix.MS_REC)
	if p.lower != "" {
		from, flags = filepath.Join(s.at[p.lower], strings.TrimPrefix(p.path, p.lower)), unix.MS_BIND
	}
	if err := unix.Mount(from, p.path, "", flags, ""); err != nil {
		return fmt.Errorf("cannot bind %s for a session: %w", chat.Quote(p.path), err)
	}
	return nil
}
