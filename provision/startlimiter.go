package provision

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// startLimiter bounds how many chats are created or woken simultaneously. A start takes most of
// a core, without a CPU quota; hundreds would starve the chats that are awake. Waiting starts
// take turns by owner and by verb, so that no owner waits for all starts of another.
type startLimiter struct {
	mu      sync.Mutex
	free    int
	waiting map[startTurn][]chan struct{}
	turns   []startTurn // those with a waiter; the first is next
}

// startTurn is what takes turns: the creates of one owner, and the wakes.
type startTurn struct{ owner, what string }

// startHold is how long one start may occupy its slot. A start that takes longer is waiting for
// the chat's own ~/.bashrc, or for an overloaded host.
const startHold = 3 * time.Second

// newStartLimiter has n slots; zero means one for each CPU, and at least two.
func newStartLimiter(n int) *startLimiter {
	if n == 0 {
		n = max(2, runtime.NumCPU())
	}
	return &startLimiter{free: n, waiting: map[startTurn][]chan struct{}{}}
}

// acquireStart waits for a slot to create or wake a chat; leave frees the slot, and is idempotent.
func (m *Manager) acquireStart(ctx context.Context, rec state.Record, what string) (leave func(), err error) {
	leave, err = m.starts.enter(ctx, startTurn{rec.Owner, what})
	if err != nil {
		return nil, fmt.Errorf("cannot %s chat %s: others are being created and woken: %w: %w", what, rec.ID, err, chat.ErrBusy)
	}
	return leave, nil
}

func (g *startLimiter) enter(ctx context.Context, turn startTurn) (leave func(), err error) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.held(), nil
	}
	mine := make(chan struct{})
	if len(g.waiting[turn]) == 0 {
		g.turns = append(g.turns, turn)
	}
	g.waiting[turn] = append(g.waiting[turn], mine)
	g.mu.Unlock()
	select {
	case <-mine:
		return g.held(), nil
	case <-ctx.Done():
	}
	if !g.giveUp(turn, mine) {
		g.next() // it was given a slot meanwhile
	}
	return nil, context.Cause(ctx)
}

// held arranges that a slot is freed: by leave, or after startHold.
func (g *startLimiter) held() (leave func()) {
	var once sync.Once
	late := time.AfterFunc(startHold, func() { once.Do(g.next) })
	return func() {
		late.Stop()
		once.Do(g.next)
	}
}

// next gives a free slot to the waiter whose turn it is.
func (g *startLimiter) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.turns) == 0 {
		g.free++
		return
	}
	turn := g.turns[0]
	g.turns = g.turns[1:]
	all := g.waiting[turn]
	close(all[0])
	if g.waiting[turn] = all[1:]; len(all) > 1 {
		g.turns = append(g.turns, turn)
	} else {
		delete(g.waiting, turn)
	}
}

// giveUp removes a waiter; it returns false for one that has a slot already.
func (g *startLimiter) giveUp(turn startTurn, mine chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting[turn] {
		if w != mine {
			continue
		}
		rest := append(g.waiting[turn][:i:i], g.waiting[turn][i+1:]...)
		if g.waiting[turn] = rest; len(rest) == 0 {
			delete(g.waiting, turn)
			for j, t := range g.turns {
				if t == turn {
					g.turns = append(g.turns[:j:j], g.turns[j+1:]...)
					break
				}
			}
		}
		return true
	}
	return false
}
