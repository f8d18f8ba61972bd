package provision

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/trees"
	"github.com/chatd/chatd/verdict"
)

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

// shimPolicy returns the policy that the shims of a chat check against. It is nil if it cannot
// be marshalled; then the shims refuse only what never runs.
func (m *Manager) shimPolicy(rec state.Record) []byte {
	p := m.profile(rec)
	rules, err := verdict.ForShims(m.policy(rec), rec.Agent)
	if err == nil {
		var b []byte
		b, err = shims.ShimPolicy{Home: m.home(rec.ID), Agent: rec.Agent, Guard: p.Guard, Rules: rules, Network: m.network(p),
			Egress: p.Egress, Resolvers: len(p.Resolvers) > 0}.JSON()
		if err == nil {
			return b
		}
	}
	m.log.Error("the shims judge by no profile", "chat", rec.ID, "error", err)
	return nil
}
