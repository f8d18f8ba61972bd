package enforce

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/chatd/chatd/chat"
)

// savedKept is what a later worker needs to take a session up.
type savedKept struct {
	Order  Order        `json:"order"`
	Mounts []int        `json:"mounts"` // bubblewrap's
	Covers []savedCover `json:"covers"`
	Led    led          `json:"led"`
}

type savedCover struct {
	Path         string
	Class        wallClass
	Parent       wallClass
	Dir, Base    bool
	Major, Minor uint32
	Ino, ID      uint64
}

func (k *keeper) file(id chat.ID) string { return filepath.Join(k.dir, "sessions", string(id)+".json") }

// save notes a session for a later worker. The caller holds the session's lock.
func (k *keeper) save(s *kept) error {
	f := savedKept{Order: s.order, Mounts: s.known, Led: s.led}
	for _, c := range slices.Concat(s.covers, s.buried) {
		f.Covers = append(f.Covers, savedCover{c.path, c.class, c.parent, c.dir, c.base, c.inode.major, c.inode.minor, c.inode.ino, c.id})
	}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(k.file(s.leader.chat)+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(k.file(s.leader.chat)+".new", k.file(s.leader.chat))
	}
	if err != nil {
		return fmt.Errorf("cannot note a session: %w", err)
	}
	return nil
}

// takeUp takes the sessions up that an earlier worker kept. While it does, their opens
// wait. One that cannot be taken up ends.
func (k *keeper) takeUp() error {
	files, err := filepath.Glob(filepath.Join(k.dir, "sessions", "*.json"))
	if err != nil {
		return fmt.Errorf("cannot find the sessions: %w", err)
	}
	if len(files) == 0 {
		return nil
	}
	// Before anything new is asked: the numbers are given again.
	if err := refuseLost(k.watch.permFD); err != nil {
		return err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		var f savedKept
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil {
			return fmt.Errorf("cannot take a session up: %w", err)
		}
		k.takeUpOne(f)
	}
	return nil
}

func (k *keeper) takeUpOne(f savedKept) {
	s, _, err := k.session(f.Order)
	if err != nil {
		_ = os.Remove(k.file(f.Order.Chat)) // it has ended
		return
	}
	s.known, s.taken, s.led = f.Mounts, true, f.Led
	for _, c := range f.Covers {
		s.covers = append(s.covers, cover{want{c.Path, c.Class, c.Parent, c.Dir, inode{c.Major, c.Minor, c.Ino}, c.Base}, c.ID})
	}
	if err = k.raise(s, &f.Order); err != nil {
		k.end(s, err)
	}
}
