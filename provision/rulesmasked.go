package provision

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// masks are the mounts by which bubblewrap masks those paths that the chat's file rules close as
// a whole and that exist now. The enforcer takes them over before any code of the chat runs.
// Neither depends on the other.
//
// A mask never covers another mount, which the enforcer would have to look into. It is mounted
// only where nobody can swap a name before bubblewrap gets there: in the home of a sleeping chat,
// and in trees that no session can write to.
func (m *Manager) masks(rec state.Record, v shims.View) (all []chat.Exposed) {
	closed := m.closedTo(rec)
	paths := slices.Concat(closed.Home, closed.Outside)
	if len(paths) == 0 || m.without(chat.LayerView) || !enforce.Needed(m.policy(rec), rec.Agent) {
		return nil
	}
	mounts := v.Mounts()
	for _, p := range paths {
		if slices.ContainsFunc(mounts, func(mount chat.Mount) bool { return chat.Within(mount.Target, p) }) {
			continue
		}
		base, rel := "/", strings.TrimPrefix(v.HostPath(p), "/")
		if chat.Within(p, v.Home) {
			base, rel = v.Home, strings.TrimPrefix(p, v.Home+"/")
		}
		if dir, ok := maskable(base, rel); ok {
			source := enforce.ClosedFile
			if dir {
				source = enforce.ClosedDirectory
			}
			all = append(all, chat.Exposed{Source: filepath.Join(m.enforcer.MasksDir(), source), Target: p, Mode: chat.ReadOnly, File: !dir, By: "file rules"})
		}
	}
	return all
}

// maskable reports whether rel below base is a directory or a regular file, reached by no link.
func maskable(base, rel string) (dir, ok bool) {
	if rel == "" {
		return false, false
	}
	at, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(at)
	fd, err := sys.Openat2(at, rel, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false, false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFDIR, kind == unix.S_IFDIR || kind == unix.S_IFREG
}

// maskedPaths returns the denied paths that bubblewrap masks in the session.
func (s *session) maskedPaths() []string {
	if masked := s.masked.Load(); masked != nil {
		return *masked
	}
	return nil
}

func targets(list []chat.Exposed) (all []string) {
	for _, e := range list {
		all = append(all, e.Target)
	}
	return all
}

// forgetMasks drops from a session's record the masks of paths that new rules open: the enforcer
// has removed their mounts, and mounts its own if rules close the path again.
func (m *Manager) forgetMasks(rec state.Record, s *session) error {
	masked, closed := s.maskedPaths(), m.closedTo(rec)
	left := slices.DeleteFunc(slices.Clone(masked), func(p string) bool {
		return !slices.Contains(closed.Home, p) && !slices.Contains(closed.Outside, p)
	})
	if len(left) == len(masked) {
		return nil
	}
	s.masked.Store(&left)
	return m.writeSessionFile(s)
}
