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

// startLimiter bounds how many chats are created or woken at once: a start takes most of a
// core, without a CPU quota, and hundreds at once would leave the other chats nothing. Those who
// wait take turns by owner and by what they want, so that nobody waits for all of another's.
type startLimiter struct {
	mu      sync.Mutex
	free    int
	waiting map[startTurn][]chan struct{}
	turns   []startTurn // those with somebody waiting; the first is next
}

// startTurn is what takes turns: the creates of one owner, and the wakes.
type startTurn struct{ owner, what string }

// startHold is how long one start may keep its place. What takes longer waits for the chat's
// own ~/.bashrc, or for a host that is too busy anyway.
const startHold = 3 * time.Second

// newStartLimiter has n places; zero is one for each CPU, and two at least.
func newStartLimiter(n int) *startLimiter {
	if n == 0 {
		n = max(2, runtime.NumCPU())
	}
	return &startLimiter{free: n, waiting: map[startTurn][]chan struct{}{}}
}

// acquireStart waits for a place to create or wake a chat in; leave gives it back, and may be
// called again.
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
		g.next() // it was given a place meanwhile
	}
	return nil, context.Cause(ctx)
}

// held is how a place is given back: by leave, or when its time is over.
func (g *startLimiter) held() (leave func()) {
	var once sync.Once
	late := time.AfterFunc(startHold, func() { once.Do(g.next) })
	return func() {
		late.Stop()
		once.Do(g.next)
	}
}

// next passes a place on.
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

// giveUp takes a waiter out; false is one that has a place already.
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
