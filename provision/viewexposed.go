package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// KeyError is an error about one key of a profile, as expose_paths[1] or
// allow_read_paths[0].
type KeyError struct {
	Key string
	Err error
}

// Error names the key and the reason.
func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap is the reason.
func (e *KeyError) Unwrap() error { return e.Err }

// CheckView checks on this host everything that a profile exposes, as a session of the profile
// would: each path exists, no chat could swap it, and it breaks no wall. The error is a
// [*KeyError].
func CheckView(opt Options, p chat.Profile) error {
	m := newManager(opt)
	m.units = usesUnits(opt.Backend)
	_, _, err := m.lookAtView(p)
	if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) {
		return nil // only root can check it
	}
	return err
}

// openHost opens the host as the sessions of this manager see it.
func (m *Manager) openHost(uid uint32) (*hostTree, error) {
	own := []string{m.opt.Homes, m.opt.State, m.opt.Run, m.opt.Private, m.opt.Userdb}
	return openHost(m.units, own, uid)
}

// checkViews checks the view of every profile before the first session is started.
func (m *Manager) checkViews() error {
	for name, p := range m.opt.Profiles {
		_, notes, err := m.lookAtView(p)
		if err != nil {
			return fmt.Errorf("cannot use profile %s: %w", name, err)
		}
		for _, n := range notes {
			m.log.Info("a profile opens less of the host than it may seem", "profile", name, "why", n)
		}
	}
	return nil
}

func (m *Manager) lookAtView(p chat.Profile) (all []shims.Exposed, notes []string, err error) {
	if !opensHost(p) || m.without(chat.LayerView) {
		return nil, nil, nil
	}
	uid := m.probeUID()
	if os.Geteuid() != 0 {
		uid = 0
	}
	h, err := m.openHost(uid)
	if err != nil {
		return nil, nil, err
	}
	all, notes, err = h.exposed(p, m.paths.homes+"/"+string(probeID), m.paths.homes)
	return all, notes, errors.Join(err, h.Close())
}

// opensHost reports whether the profile exposes paths of the host.
func opensHost(p chat.Profile) bool {
	return len(p.ExposePaths)+len(p.AllowReadPaths)+len(p.AllowWritePaths) > 0
}

// exposed looks up, on the host as it is now, the paths that the chat's profile exposes to its
// session.
func (m *Manager) exposed(rec state.Record) (all []shims.Exposed, notes []string, err error) {
	p := m.profile(rec)
	if !opensHost(p) || m.without(chat.LayerView) {
		return nil, nil, nil
	}
	h, err := m.openHost(rec.UID)
	if err != nil {
		return nil, nil, err
	}
	all, notes, err = h.exposed(p, m.home(rec.ID), m.paths.homes)
	if err := errors.Join(err, h.Close()); err != nil {
		// The profile was valid when chatd started, so the host has changed. The error has no
		// kind: a bridge learns only where the log has it, and not the paths.
		return nil, nil, fmt.Errorf("cannot make the view of chat %s: profile %s: %v", rec.ID, p.Name, err)
	}
	return all, notes, nil
}

// makeMountPoints makes the mount points in the home. A mount inside another exposed path has
// its mount point in that path's source.
func (m *Manager) makeMountPoints(rec state.Record, all []shims.Exposed) error {
	home := m.home(rec.ID)
	var points []shims.Exposed
	for _, e := range all {
		if chat.Within(e.Target, home) && holder(points, e.Target) == nil {
			points = append(points, e)
		}
	}
	if len(points) == 0 {
		return nil
	}
	return m.inHome(rec, func(fd int) error {
		for _, e := range points {
			moved, err := makeMountPoint(fd, strings.TrimPrefix(e.Target, home+"/"), e.File)
			if err != nil {
				return fmt.Errorf("cannot make the mount point %s: %w", e.Target, err)
			}
			if len(moved) > 0 {
				m.log.Warn("what a chat had where something is mounted was moved aside", "chat", rec.ID, "target", e.Target, "moved", moved)
			}
		}
		return nil
	})
}

// exposed returns the paths that a profile exposes to a chat with that home, parents before
// their children, each target once.
func (h *hostTree) exposed(p chat.Profile, home, homes string) (all []shims.Exposed, notes []string, err error) {
	rules, err := h.rules(p, home, homes)
	if err != nil {
		return nil, nil, err
	}
	granted, notes, err := h.granted(p, len(rules))
	if err != nil {
		return nil, nil, err
	}
	all = slices.Concat(rules, granted)
	slices.SortStableFunc(all, func(a, b shims.Exposed) int { return sys.ComparePaths(a.Target, b.Target) })
	return h.settle(all, notes)
}

// rules returns the checked expose_paths of the profile.
func (h *hostTree) rules(p chat.Profile, home, homes string) (all []shims.Exposed, err error) {
	if n := len(p.ExposePaths); n > mostPlaces {
		return nil, &KeyError{"expose_paths", fmt.Errorf("%d rules: want at most %d: %w", n, mostPlaces, chat.ErrInvalid)}
	}
	for i, e := range p.ExposePaths {
		key := fmt.Sprintf("expose_paths[%d]", i)
		target := path.Clean(e.At())
		if rel, ok := strings.CutPrefix(target, "~/"); ok {
			target = path.Join(home, rel)
		} else if chat.Within(target, homes) || chat.Within(homes, target) {
			return nil, &KeyError{key + ".target", fmt.Errorf("%s is where the homes are: want ~/ in front for a place in the home: %w", chat.Quote(target), chat.ErrInvalid)}
		}
		f, err := h.source(path.Clean(e.Source))
		if err == nil {
			err = h.passable([]string{f.path})
		}
		if err != nil {
			return nil, &KeyError{key + ".source", err}
		}
		all = append(all, shims.Exposed{Source: f.path, Target: target, Mode: e.Mode, File: f.file, Exec: true, By: key})
	}
	return all, nil
}

// mostPlaces keeps bubblewrap's arguments below its own bound, 9,000.
const mostPlaces = 2 * chat.MaxGrantMatches

// granted returns the matches of allow_write_paths and allow_read_paths, writable ones first.
// The bound mostPlaces holds for them and the expose_paths together.
func (h *hostTree) granted(p chat.Profile, rules int) (all []shims.Exposed, notes []string, err error) {
	grants, key, err := p.Grants()
	if err != nil {
		return nil, nil, &KeyError{key, err}
	}
	for i, g := range grants {
		key := fmt.Sprintf("allow_read_paths[%d]", i)
		if g.Mode == chat.ReadWrite {
			key = fmt.Sprintf("allow_write_paths[%d]", i-len(p.AllowReadPaths))
		}
		e, err := h.expand(g)
		if err == nil {
			err = h.passable(e.names())
		}
		if err != nil {
			return nil, nil, &KeyError{key, err}
		}
		notes = append(notes, e.notes...)
		if rules+len(all)+len(e.matches) > mostPlaces {
			return nil, nil, &KeyError{key, fmt.Errorf("expose_paths and all grants of the profile stand for more than %d paths: want fewer, or their directories: %w", mostPlaces, chat.ErrInvalid)}
		}
		for _, f := range e.matches {
			all = append(all, shims.Exposed{Source: e.sourceOf(f), Target: f.path, Mode: g.Mode, File: f.file, By: key})
		}
	}
	slices.SortStableFunc(all, func(a, b shims.Exposed) int { return strings.Compare(string(b.Mode), string(a.Mode)) })
	return all, notes, nil
}

func (e *expansion) sourceOf(f found) string {
	if s := e.sources[f.path]; s != "" {
		return s
	}
	return f.path
}

func (e *expansion) names() (names []string) {
	for _, f := range e.matches {
		names = append(names, e.sourceOf(f))
	}
	return names
}

// holder returns the last entry whose target is or holds target, nil if none does: the innermost.
func holder(all []shims.Exposed, target string) (in *shims.Exposed) {
	for i := range all {
		if chat.Within(target, all[i].Target) {
			in = &all[i]
		}
	}
	return in
}

// settle leaves out entries that another entry already shows. Where a rule's target lies in
// another entry, its mount point must exist in the source: bubblewrap would make one there.
func (h *hostTree) settle(all []shims.Exposed, notes []string) (out []shims.Exposed, _ []string, err error) {
	for _, e := range all {
		in := holder(out, e.Target)
		rule := strings.HasPrefix(e.By, "expose_paths")
		switch {
		case in == nil:
		case !rule && in.Source+strings.TrimPrefix(e.Target, in.Target) != e.Source:
			notes = append(notes, fmt.Sprintf("%s: %s is of %s", e.By, chat.Quote(e.Target), in.By))
			continue
		case !rule && (in.Mode == chat.ReadWrite || e.Mode == chat.ReadOnly):
			continue
		case rule:
			if err := h.point(*in, e); err != nil {
				return nil, nil, &KeyError{e.By + ".target", err}
			}
		}
		out = append(out, e)
	}
	return out, notes, nil
}

// point checks that the mount point of e exists in the source of in, the entry that holds it.
func (h *hostTree) point(in, e shims.Exposed) error {
	p := in.Source + strings.TrimPrefix(e.Target, in.Target)
	fd, f, err := h.open(p)
	if err != nil {
		return fmt.Errorf("%s lies in the target of %s, and so needs a mount point there: %w", chat.Quote(e.Target), in.By, err)
	}
	unix.Close(fd)
	if f.file != e.File {
		return fmt.Errorf("%s lies in the target of %s, where %s is a directory and no file, or the reverse: %w", chat.Quote(e.Target), in.By, chat.Quote(p), chat.ErrInvalid)
	}
	return nil
}
