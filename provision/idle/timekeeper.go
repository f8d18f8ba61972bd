package idle

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// Timekeeper keeps a [Clock] in a file, for the next chatd of the same boot.
type Timekeeper struct {
	Clock *Clock
	File  string
	// MoveAll is that of [Clock.Keep].
	MoveAll func(move func(used time.Time) time.Time)
	Log     *slog.Logger
	mu      sync.Mutex
	saved   time.Time // what the file has
}

// savedClock is what the next chatd of the same boot knows of the wall clock.
type savedClock struct {
	Boot string    `json:"boot"`
	Zero time.Time `json:"zero"`
}

// Keep comes before each look at how long chats are idle. The file follows a step by one look: by then
// used_at of the chats is on the disk, and a chatd that is killed in between moves it once more, which
// makes no chat idle for longer.
func (k *Timekeeper) Keep() {
	if step := k.Clock.Keep(k.MoveAll); step != 0 {
		k.Log.Warn("the clock was set: used_at of the chats moves with it", "by", step)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	zero := k.Clock.Zero()
	if zero.Sub(k.saved).Abs() < time.Second {
		return
	}
	k.saved = zero
	boot, err := sys.BootID()
	text, _ := json.Marshal(savedClock{boot, zero})
	if err == nil {
		err = safefs.ReplaceFile(k.File, text, 0o600)
	}
	if err != nil {
		k.Log.Warn("a clock that is set while chatd is down will be believed", "error", err)
	}
}

// Begin is the first look at the clock.
func (k *Timekeeper) Begin() {
	var last savedClock
	text, err := os.ReadFile(k.File)
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if boot, bootErr := sys.BootID(); bootErr != nil || last.Boot != boot {
		last.Zero = time.Time{}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		k.Log.Warn("if the clock was set while chatd was down is not known", "error", err)
	}
	if step := k.Clock.Begin(last.Zero, k.MoveAll); step != 0 {
		k.Log.Warn("the clock was set while chatd was down: used_at of the chats moves with it", "by", step)
	}
}
