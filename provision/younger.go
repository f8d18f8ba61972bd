package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
)

// checkYounger refuses a database that is younger than the host it is on: one that never gave a
// uid which a home, a private /tmp or an account has. It would give that uid to another chat,
// and with it everything that the first one left.
func (m *Manager) checkYounger(context.Context) error { return m.younger(m.store.WasGiven) }

func (m *Manager) younger(given func(uint32) bool) error {
	owners := map[uint32]string{}
	for _, dir := range []string{m.paths.homes, m.paths.tmp, m.paths.varTmp} {
		if err := ownersIn(dir, owners); err != nil {
			return err
		}
	}
	if err := m.recordedUIDs(owners); err != nil {
		return err
	}
	uids := make([]uint32, 0, len(owners))
	for uid, what := range owners {
		if filepath.Base(what) != probeHome {
			uids = append(uids, uid)
		}
	}
	never := state.NeverGiven(given, m.opt.UIDs, uids)
	if len(never) == 0 {
		return nil
	}
	var found []string
	for _, uid := range never[:min(len(never), 5)] {
		found = append(found, fmt.Sprintf("%s of uid %d", owners[uid], uid))
	}
	if more := len(never) - len(found); more > 0 {
		found = append(found, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("cannot use the database in %s: it is younger than what is on this host, and would give used uids again: it never heard of %s: %s: %w",
		m.opt.State, strings.Join(found, ", "), state.Restore, chat.ErrExists)
}

// ownersIn notes who owns what lies directly in dir, which need not be there.
func ownersIn(dir string, owners map[uint32]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list %s: %w", dir, err)
	}
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot look at %s: %w", filepath.Join(dir, e.Name()), err)
		}
		uid, _ := sys.OwnerOf(fi)
		owners[uid] = filepath.Join(dir, e.Name())
	}
	return nil
}

// recordedUIDs notes the user records, which are named by number too.
func (m *Manager) recordedUIDs(owners map[uint32]string) error {
	entries, err := os.ReadDir(m.userdb.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot list %s: %w", m.userdb.Dir, err)
	}
	for _, e := range entries {
		number, ok := strings.CutSuffix(e.Name(), ".user")
		uid, err := strconv.ParseUint(number, 10, 32)
		if ok && err == nil {
			owners[uint32(uid)] = filepath.Join(m.userdb.Dir, e.Name())
		}
	}
	return nil
}

// peekYounger is checkYounger for doctor, where no daemon holds the state. A state that is held
// or cannot be read is no finding of this kind.
func peekYounger(opt Options) error {
	given, err := state.Peek(opt.State)
	if err != nil {
		return nil
	}
	return newManager(opt).younger(given)
}
