package schedule

import (
	"container/heap"
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// look is how long the wall clock may go unwatched: a timer does not see it step, nor
// the sleep of the host.
const look = 30 * time.Second

// Clock is the source of time: [WallClock], or a test's own.
type Clock struct {
	Now func() time.Time
	// After is [time.After].
	After func(time.Duration) <-chan time.Time
}

// WallClock is the host's.
func WallClock() Clock { return Clock{Now: time.Now, After: time.After} }

// Due is a schedule whose time has come.
type Due struct {
	Chat chat.ID
	ID   string
	// At is the time it is for, and Missed how many more have passed since.
	At     time.Time
	Missed uint64
	// Next is when it comes due again; zero is never.
	Next time.Time
	// UnderWay: the run has begun already, in an earlier process; see [Runner.GoOn].
	UnderWay bool
}

// Options are a [Runner]'s settings and callbacks.
type Options struct {
	Clock Clock
	// Slots bounds the simultaneous runs.
	Slots int
	// Spread bounds how much later than its time a schedule that is added with spread may begin.
	// Each has its own amount, so that they do not all begin in a minute's first second.
	Spread time.Duration
	// After says when a schedule that is due at one time comes due after now. ok is false for one that
	// is gone. No method of [Runner] waits for it and Resume.
	After func(id chat.ID, schedule string, at, now time.Time) (next Next, ok bool)
	// Resume says when a schedule comes due now that the clock was set back.
	Resume func(id chat.ID, schedule string, next, now time.Time) time.Time
	// Run runs it and returns when it has ended. skipped takes how many times came due
	// meanwhile. The context ends with that of [Runner.Serve].
	Run func(ctx context.Context, d Due, skipped func() uint64)
}

// Next is when a schedule comes due again, and how many of its times were missed until then.
type Next struct {
	At     time.Time
	Missed uint64
	// Owner is the owner of its chat. One owner's runs take at most three quarters of the slots,
	// however many wait.
	Owner string
}

// Runner begins schedules when they come due. Its methods may be called simultaneously from many
// goroutines.
type Runner struct {
	opt  Options
	stir chan struct{}
	runs sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // that of Serve; nil before
	seen    time.Time       // the wall clock at the last look
	queue   queue
	chats   map[chat.ID]*turns
	ready   []*entry // due, and their chat's turn; in order
	running int
	owned   map[string]int      // how many runs each owner has
	parked  map[string][]*entry // ready, when their owner had the most runs allowed
}

// entry is one schedule.
type entry struct {
	chat    chat.ID
	id      string
	at      time.Time // when it comes due; zero is never again
	begins  time.Time // at, and its own part of the spread
	index   int       // in the queue; -1 when it is not there
	spread  bool
	busy    bool // due, ready or running
	resumed bool // an earlier process began the run for which it is busy
	gone    bool
	dueAt   time.Time // of the time for which it is busy
	missed  uint64
	skipped uint64
	owner   string
}

// NewRunner prepares a runner without schedules.
func NewRunner(opt Options) *Runner {
	return &Runner{opt: opt, stir: make(chan struct{}, 1), chats: map[chat.ID]*turns{},
		owned: map[string]int{}, parked: map[string][]*entry{}}
}

// Add adds a schedule that is due at next, and replaces one of that name. Zero means never. With
// spread it begins within [Options].Spread.
func (r *Runner) Add(id chat.ID, schedule string, next time.Time, spread bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(id, schedule)
	if !next.IsZero() {
		r.enter(id, schedule, next, spread)
	}
}

// GoOn is Add for a schedule whose run an earlier process began at due and that still goes on. It
// has a slot of the owner's and its chat's turn, and [Options].Run waits for its end. It comes before Serve.
func (r *Runner) GoOn(id chat.ID, schedule, owner string, due, next time.Time, spread bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(id, schedule)
	t, e := r.enter(id, schedule, next, spread)
	e.busy, e.resumed, e.dueAt, e.owner = true, true, due, owner
	t.taken = true
	r.ready = append(r.ready, e)
}

// enter adds a schedule that is not there; a next of zero is never.
func (r *Runner) enter(id chat.ID, schedule string, next time.Time, spread bool) (*turns, *entry) {
	t := r.chats[id]
	if t == nil {
		t = &turns{entries: map[string]*entry{}}
		r.chats[id] = t
	}
	e := &entry{chat: id, id: schedule, index: -1, spread: spread}
	t.entries[schedule] = e
	r.set(e, next)
	r.stirUp()
	return t, e
}

// Remove removes a schedule. Its current run continues.
func (r *Runner) Remove(id chat.ID, schedule string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(id, schedule)
}

// Has reports whether the chat has a schedule that is due some time.
func (r *Runner) Has(id chat.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.chats[id]
	return t != nil && len(t.entries) > 0
}

// RemoveChat removes all schedules of a chat.
func (r *Runner) RemoveChat(id chat.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.chats[id]; t != nil {
		for name := range t.entries {
			r.remove(id, name)
		}
	}
}

func (r *Runner) remove(id chat.ID, schedule string) {
	t := r.chats[id]
	if t == nil || t.entries[schedule] == nil {
		return
	}
	e := t.entries[schedule]
	e.gone = true
	r.set(e, time.Time{})
	delete(t.entries, schedule)
	r.leave(id, t)
}

// leave forgets a chat that has no schedules and no run.
func (r *Runner) leave(id chat.ID, t *turns) {
	if len(t.entries) == 0 && !t.taken {
		delete(r.chats, id)
	}
}

// Look returns when a schedule is due next, and how many skipped times were not reported yet. ok is
// false for one that is never due again.
func (r *Runner) Look(id chat.ID, schedule string) (next time.Time, skipped uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.chats[id]
	if t == nil || t.entries[schedule] == nil {
		return time.Time{}, 0, false
	}
	e := t.entries[schedule]
	return e.at, e.skipped, true
}

// Serve has schedules begin until ctx ends, and then waits for the runs under way.
func (r *Runner) Serve(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	defer r.runs.Wait()
	for ctx.Err() == nil {
		var timer <-chan time.Time
		if wait, any := r.tick(r.opt.Clock.Now()); any {
			timer = r.opt.Clock.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-timer:
		case <-r.stir:
		}
	}
}

func (r *Runner) stirUp() {
	select {
	case r.stir <- struct{}{}:
	default:
	}
}

// tick has begin what is due, and says when to look again; any is false where nothing
// comes due at all.
func (r *Runner) tick(now time.Time) (wait time.Duration, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now = plain(now)
	if now.Before(r.seen.Add(-time.Second)) {
		r.resume(now)
	}
	r.seen = now
	for len(r.queue) > 0 && !r.queue[0].begins.After(now) && !r.isEnding() {
		r.due(r.queue[0], now)
		r.begin()
	}
	r.begin()
	if len(r.queue) == 0 {
		return 0, false
	}
	return min(look, r.queue[0].begins.Sub(now)), true
}

// set puts an entry where its time is in the queue; zero takes it out.
func (r *Runner) set(e *entry, at time.Time) {
	e.at, e.begins = plain(at), plain(at).Add(r.spread(e))
	switch {
	case at.IsZero() && e.index >= 0:
		heap.Remove(&r.queue, e.index)
	case at.IsZero():
	case e.index >= 0:
		heap.Fix(&r.queue, e.index)
	default:
		heap.Push(&r.queue, e)
	}
}

// spread is a schedule's own part of the spread, the same each time, in whole seconds.
func (r *Runner) spread(e *entry) time.Duration {
	n := uint64(r.opt.Spread / time.Second)
	if n == 0 || !e.spread {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(e.chat) + " " + e.id)) // a hash takes everything
	return time.Duration(h.Sum64()%n) * time.Second
}

// queue is a heap by the time at which entries begin (container/heap).
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].begins.Before(q[j].begins) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.index = -1
	return e
}
