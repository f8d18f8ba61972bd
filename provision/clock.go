package provision

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// savedClock is what the next chatd of the same boot knows of the wall clock; see [idle.Clock].
type savedClock struct {
	Boot string    `json:"boot"`
	Zero time.Time `json:"zero"`
}

func (m *Manager) clockFile() string { return filepath.Join(m.opt.Run, "clock") }

// keepTime comes before each look at how long chats are idle; see [idle.Clock]. The file follows a
// step by one look: by then used_at of the chats is on the disk, and a chatd that is killed in
// between moves it once more, which makes no chat idle for longer.
func (m *Manager) keepTime() {
	if step := m.clock.Keep(m.store.MoveUsed); step != 0 {
		m.log.Warn("the clock was set: used_at of the chats moves with it", "by", step)
		return
	}
	m.clockMu.Lock()
	defer m.clockMu.Unlock()
	zero := m.clock.Zero()
	if zero.Sub(m.clockSaved).Abs() < time.Second {
		return
	}
	m.clockSaved = zero
	boot, err := sys.BootID()
	text, _ := json.Marshal(savedClock{boot, zero})
	if err == nil {
		err = safefs.ReplaceFile(m.clockFile(), text, 0o600)
	}
	if err != nil {
		m.log.Warn("a clock that is set while chatd is down will be believed", "error", err)
	}
}

// beginTime is the first look at the clock.
func (m *Manager) beginTime() {
	var last savedClock
	text, err := os.ReadFile(m.clockFile())
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if boot, bootErr := sys.BootID(); bootErr != nil || last.Boot != boot {
		last.Zero = time.Time{}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.log.Warn("if the clock was set while chatd was down is not known", "error", err)
	}
	if step := m.clock.Begin(last.Zero, m.store.MoveUsed); step != 0 {
		m.log.Warn("the clock was set while chatd was down: used_at of the chats moves with it",
			"by", step)
	}
}
