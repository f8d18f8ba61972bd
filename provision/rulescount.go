package provision

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/shims"
)

// countRules refuses file rules that match more paths of the trees that sessions share than one
// session can mask. It reads all of /usr, so it runs after chatd's start has returned.
func (m *Manager) countRules(ctx context.Context) error { return m.countPlaces(ctx, m.opt.Access) }

func (m *Manager) countPlaces(ctx context.Context, policies map[string]*filerules.Policy) error {
	var errs []error
	done := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		trees := m.sharedTrees(m.opt.Profiles[name])
		_, text := policies[name].Source()
		key := fmt.Sprintf("%x %q", sha256.Sum256(text), trees)
		if done[key] || !enforce.NeededBy(policies[name]) || policies[name] == filerules.Defaults() { // the defaults match few names
			continue
		}
		done[key] = true
		if err := enforce.CheckTrees(ctx, policies[name], m.probeHome(), trees); err != nil {
			errs = append(errs, fmt.Errorf("cannot use the file rules of profile %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// probeHome is an example of the homes that rules are for.
func (m *Manager) probeHome() string { return filepath.Join(m.paths.homes, string(probeID)) }

// CheckPlaces refuses rules that match too many of the paths that every session on this host
// sees, as far as this user may read them. Its error is [filerules.Faults]. home is an example of
// the homes that the rules are for.
func CheckPlaces(ctx context.Context, p *filerules.Policy, home string) error {
	err := enforce.CheckTrees(ctx, p, home, systemTrees())
	var refused enforce.Unenforceable
	if errors.As(err, &refused) {
		return filerules.Faults(refused)
	}
	return err
}

func systemTrees() (trees []enforce.Tree) {
	for _, dir := range shims.SystemTrees() {
		trees = append(trees, enforce.Tree{Source: dir, At: dir})
	}
	return trees
}

// sharedTrees returns the trees that every session of a profile sees and no chat can write to: a
// chat that could write there could keep an operator's rules from loading.
func (m *Manager) sharedTrees(p chat.Profile) (trees []enforce.Tree) {
	if m.without(chat.LayerView) {
		return nil
	}
	trees = systemTrees()
	all, _, err := m.lookAtView(p)
	if err != nil {
		m.log.Warn("what a profile exposes cannot be looked at; its file rules are not counted there", "profile", p.Name, "why", err)
	}
	for _, e := range all {
		if e.Mode == chat.ReadOnly && !m.writable(e.Source) {
			trees = append(trees, enforce.Tree{Source: e.Source, At: e.Target})
		}
	}
	return trees
}

// writable reports whether some profile lets its chats write at or below a path of the
// host, or around it.
func (m *Manager) writable(p string) bool {
	for _, profile := range m.opt.Profiles {
		if len(profile.AllowWritePaths) > 0 { // expressions, which may match any path
			return true
		}
		for _, e := range profile.ExposePaths {
			if e.Mode == chat.ReadWrite && (chat.Within(p, path.Clean(e.Source)) || chat.Within(path.Clean(e.Source), p)) {
				return true
			}
		}
	}
	return false
}
