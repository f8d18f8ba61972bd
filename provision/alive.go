package provision

import (
	"context"
	"fmt"
)

// Alive counts the chats, and those awake, under the locks that every caller needs. If ctx ends
// before it has the locks, it returns an error: the manager hangs.
func (m *Manager) Alive(ctx context.Context) (chats, awake int, err error) {
	got := make(chan [2]int, 1)
	go func() {
		unlock, err := m.locks.lock(ctx, "")
		if err != nil {
			return
		}
		unlock()
		m.mu.Lock()
		awake := len(m.sessions)
		m.mu.Unlock()
		got <- [2]int{m.store.Len(), awake}
	}()
	select {
	case n := <-got:
		return n[0], n[1], nil
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("cannot count the chats: %w", context.Cause(ctx))
	}
}
