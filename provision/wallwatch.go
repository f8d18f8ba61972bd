package provision

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/state"
)

// wallPause is how long a caller waits for packet rules that somebody just changed to be looked at.
// They are within a second unless iptables' lock is held.
const wallPause = 5 * time.Second

// wallDoubt counts what was heard about changes of the packet rules, and up to where they were
// looked at and put right since.
type wallDoubt struct{ heard, seen atomic.Uint64 }

// mendWall puts the rules back when somebody else changed them. They come first and the
// audit log second: a disk that is full must not keep the wall down.
func (m *Manager) mendWall(ctx context.Context) error {
	if m.without(chat.LayerEgress) {
		return nil
	}
	m.wall.Lock()
	upTo := m.doubt.heard.Load()
	drift, err := m.table.Mend(ctx)
	if err == nil {
		m.doubt.seen.Store(upTo)
	}
	m.wall.Unlock()
	if len(drift) == 0 {
		return err
	}
	m.log.Warn("the packet rules were changed behind chatd's back, and put right", "drift", drift, "error", err)
	detail := map[string]string{"layer": string(chat.LayerEgress), "drift": fmt.Sprint(drift)}
	return m.auditOutcome(ctx, state.Record{}, "mend", detail, err)
}

// watchWall looks at the rules as soon as somebody changes them. Between a flush and the next
// reconcile a chat with the host's network would be without a wall.
func (m *Manager) watchWall(ctx context.Context) {
	if m.table == nil || m.opt.Unwatched || m.without(chat.LayerEgress) {
		return
	}
	err := netpolicy.Watch(ctx, func() { m.doubt.heard.Add(1) }, func(ctx context.Context) {
		if err := m.mendWall(ctx); ctx.Err() == nil {
			m.report("the packet rules", err)
		}
	})
	if err != nil {
		m.log.Warn("changes of the packet rules are seen only once a minute", "why", err)
	}
}

// awaitWall waits until the packet rules are as chatd wrote them, as far as it has heard:
// nothing new begins between a flush and its mending.
func (m *Manager) awaitWall(ctx context.Context) error {
	for end := time.Now().Add(wallPause); m.doubt.seen.Load() < m.doubt.heard.Load(); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the packet rules: %w: %w", context.Cause(ctx), chat.ErrBusy)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("cannot begin anything: somebody changed the packet rules, and they are not put right yet: see chatd doctor: %w", chat.ErrBusy)
		}
	}
	return nil
}
