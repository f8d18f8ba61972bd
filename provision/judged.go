package provision

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/trees"
)

// judged holds the keys of a profile against which runs are checked. It is replaced as a
// whole, so that no run is checked against a mixture of two configs.
type judged struct {
	keys       chat.Guard
	toolsOff   []string
	timeoutMax chat.Duration
}

// takeJudged sets the judged keys of the profiles at start.
func (m *Manager) takeJudged(context.Context) error {
	all, err := judgedOf(m.opt.Profiles)
	m.judges.Store(&all)
	return err
}

func judgedOf(profiles map[string]chat.Profile) (map[string]judged, error) {
	all := map[string]judged{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		if err := p.Guard.CheckPatterns(); err != nil {
			errs = append(errs, fmt.Errorf("cannot use the guard of profile %s: %w", name, err))
		}
		all[name] = judged{p.Guard, p.ToolsOff, p.TimeoutMax}
	}
	return all, errors.Join(errs...)
}

// judgedAnew returns the judged keys of the profiles after a reload. Changes of other keys
// wait for a restart. A config without one of the profiles is refused: its chats would lose
// their guard.
func (m *Manager) judgedAnew(profiles map[string]chat.Profile) (map[string]judged, error) {
	errs := []error{}
	for _, name := range slices.Sorted(maps.Keys(m.opt.Profiles)) {
		p, ok := profiles[name]
		if !ok {
			errs = append(errs, fmt.Errorf("cannot do without profile %s: the new config has none of that name; restart chatd: %w", name, chat.ErrInvalid))
			continue
		}
		errs = append(errs, p.Validate())
	}
	all, err := judgedOf(profiles)
	return all, errors.Join(append(errs, err)...)
}

// judgedBy returns the current keys for a chat's runs.
func (m *Manager) judgedBy(rec state.Record) (judged, bool) {
	all := m.judges.Load()
	if all == nil {
		return judged{}, false
	}
	j, ok := (*all)[rec.Profile]
	return j, ok
}

// sumOfJudged returns a digest of each profile's judged keys, for the audit log.
func sumOfJudged(all map[string]judged) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		j := all[name]
		b, err := json.Marshal([]any{j.keys, j.toolsOff, j.timeoutMax})
		if err != nil {
			return err.Error()
		}
		out = append(out, fmt.Sprintf("%s sha256:%x", name, sha256.Sum256(b)))
	}
	return strings.Join(out, ", ")
}

// shimPolicyDir is the directory from which the shims of a session read their policy. It is a
// directory because a bind mount of a file would not show the file's replacement.
func (m *Manager) shimPolicyDir(id chat.ID) string { return filepath.Join(m.sessionDir(id), "policy") }

// makeShimPolicy makes the directory, and the policy in it. Both are root's; the chat may
// read them through its group, and no other chat may.
func (m *Manager) makeShimPolicy(rec state.Record) error {
	dir := m.shimPolicyDir(rec.ID)
	if err := trees.MakeRoot(dir, 0o750); err != nil {
		return err
	}
	if err := os.Lchown(dir, 0, int(rec.UID)); err != nil {
		return fmt.Errorf("cannot give %s to group %d: %w", dir, rec.UID, err)
	}
	return m.writeShimPolicy(rec)
}

// writeShimPolicy replaces the policy by the current one, in one step. Without a policy, shims
// refuse only what never runs.
func (m *Manager) writeShimPolicy(rec state.Record) error {
	dir := m.shimPolicyDir(rec.ID)
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil // the session is of an older chatd; its policy stays as it began
	}
	name := filepath.Join(dir, "policy.json")
	text := m.shimPolicy(rec)
	if text == nil {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot take away the policy of the shims: %w", err)
		}
		return nil
	}
	err := trees.Replace(name, func(aside string) error {
		if err := trees.WriteNew(aside, text, 0o640); err != nil {
			return err
		}
		return os.Lchown(aside, 0, int(rec.UID))
	})
	if err != nil {
		return fmt.Errorf("cannot write the policy of the shims of chat %s: %w", rec.ID, err)
	}
	return nil
}
