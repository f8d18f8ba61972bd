package exposure

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
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

// OpensHost reports whether the profile exposes paths of the host.
func OpensHost(p chat.Profile) bool {
	return len(p.ExposePaths)+len(p.AllowReadPaths)+len(p.AllowWritePaths) > 0
}

// Exposed returns the paths that a profile exposes to a chat with that home, parents before
// their children, each target once.
func (h *Host) Exposed(p chat.Profile, home, homes string) (all []chat.Exposed, notes []string, err error) {
	rules, err := h.rules(p, home, homes)
	if err != nil {
		return nil, nil, err
	}
	granted, notes, err := h.granted(p, len(rules))
	if err != nil {
		return nil, nil, err
	}
	all = slices.Concat(rules, granted)
	slices.SortStableFunc(all, func(a, b chat.Exposed) int { return sys.ComparePaths(a.Target, b.Target) })
	return h.dropCovered(all, notes)
}

// rules returns the checked expose_paths of the profile.
func (h *Host) rules(p chat.Profile, home, homes string) (all []chat.Exposed, err error) {
	if n := len(p.ExposePaths); n > maxPlaces {
		return nil, &KeyError{"expose_paths",
			chat.Invalid("%d rules: want at most %d", n, maxPlaces)}
	}
	for i, e := range p.ExposePaths {
		key := fmt.Sprintf("expose_paths[%d]", i)
		target := path.Clean(e.At())
		if rel, ok := strings.CutPrefix(target, "~/"); ok {
			target = path.Join(home, rel)
		} else if chat.Within(target, homes) || chat.Within(homes, target) {
			return nil, &KeyError{key + ".target",
				chat.Invalid("%s is where the homes are: want ~/ in front for a place in the home",
					chat.Quote(target))}
		}
		f, err := h.source(path.Clean(e.Source))
		if err == nil {
			err = h.passable([]string{f.path})
		}
		if err != nil {
			return nil, &KeyError{key + ".source", err}
		}
		all = append(all,
			chat.Exposed{Source: f.path, Target: target, Mode: e.Mode, File: f.file, Exec: true, By: key})
	}
	return all, nil
}

// maxPlaces keeps bubblewrap's arguments below its own bound, 9,000.
const maxPlaces = 2 * chat.MaxGrantMatches

// granted returns the matches of allow_write_paths and allow_read_paths, writable ones first.
// The bound maxPlaces holds for them and the expose_paths together.
func (h *Host) granted(p chat.Profile, rules int) (all []chat.Exposed, notes []string, err error) {
	grants, key, err := p.Grants()
	if err != nil {
		return nil, nil, &KeyError{key, err}
	}
	for i, g := range grants {
		key := fmt.Sprintf("allow_read_paths[%d]", i)
		if g.Mode == chat.ReadWrite {
			key = fmt.Sprintf("allow_write_paths[%d]", i-len(p.AllowReadPaths))
		}
		e, err := h.searches.expand(g, h.expand)
		if err == nil {
			err = h.passable(e.names())
		}
		if err != nil {
			return nil, nil, &KeyError{key, err}
		}
		notes = append(notes, e.notes...)
		if rules+len(all)+len(e.matches) > maxPlaces {
			return nil, nil, &KeyError{key,
				chat.Invalid("expose_paths and all grants of the profile stand for more than %d paths: want fewer, or their directories", maxPlaces)}
		}
		for _, f := range e.matches {
			all = append(all,
				chat.Exposed{Source: e.sourceOf(f), Target: f.path, Mode: g.Mode, File: f.file, By: key})
		}
	}
	slices.SortStableFunc(all, func(a, b chat.Exposed) int {
		return strings.Compare(string(b.Mode), string(a.Mode))
	})
	return all, notes, nil
}

func (e *expansion) sourceOf(f hostPath) string {
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

// Containing returns the last entry whose target is or holds target, nil if none does: the innermost.
func Containing(all []chat.Exposed, target string) (in *chat.Exposed) {
	for i := range all {
		if chat.Within(target, all[i].Target) {
			in = &all[i]
		}
	}
	return in
}

// dropCovered leaves out entries that another entry already shows. Where a rule's target lies in
// another entry, its mount point must exist in the source: bubblewrap would make one there.
func (h *Host) dropCovered(all []chat.Exposed, notes []string) (out []chat.Exposed, _ []string, err error) {
	for _, e := range all {
		in := Containing(out, e.Target)
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
func (h *Host) point(in, e chat.Exposed) error {
	p := in.Source + strings.TrimPrefix(e.Target, in.Target)
	fd, f, err := h.open(p)
	if err != nil {
		return fmt.Errorf("%s lies in the target of %s, and so needs a mount point there: %w",
			chat.Quote(e.Target), in.By, err)
	}
	unix.Close(fd)
	if f.file != e.File {
		return chat.Invalid("%s lies in the target of %s, where %s is a directory and no file, or the reverse", chat.Quote(e.Target), in.By, chat.Quote(p))
	}
	return nil
}
