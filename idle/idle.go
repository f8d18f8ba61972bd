package idle

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// lookEvery is how often all awake chats are looked at; more often where sleep_after is short.
	lookEvery = 30 * time.Second
	// minIdle is how long a chat must be idle before it makes room for another: a bridge that has
	// just created a chat types into it soon.
	minIdle = 10 * time.Second
	// trickle is the share of one CPU, in percent, that processes may use in an idle chat.
	trickle = 1
	// minInterval is the shortest time over which CPU time is a share.
	minInterval = time.Second
)

// Chat is an awake chat.
type Chat struct {
	ID    chat.ID
	Owner string
	// SleepAfter is how long it may be idle; zero is for ever.
	SleepAfter time.Duration
	// KeepAwake says that it makes no room for others.
	KeepAwake bool
	// Used is when it was last in use.
	Used time.Time
}

// Options are the functions by which a [Watch] looks at chats, and acts. They may be called from
// several goroutines.
type Options struct {
	Awake func() []Chat
	// Work says what the chat does, as in "a run is under way"; empty is nothing.
	Work func(chat.ID) string
	// CPU returns the CPU time of the chat's session so far.
	CPU func(chat.ID) (time.Duration, error)
	// Use records that a chat is in use.
	Use func(chat.ID, time.Time)
	// Sleep puts a chat to sleep, and says why in its log and the audit log. It reports false, and
	// does nothing, if another caller acts on the chat, it was used since c, or still is false.
	Sleep func(c Chat, why string, still func() bool) (bool, error)
	Log   *slog.Logger
}

// Watch knows the CPU time of the awake chats at the last look.
type Watch struct {
	opt   Options
	mu    sync.Mutex
	spent map[chat.ID]reading
}

type reading struct {
	cpu time.Duration
	at  time.Time
}

// New returns a watch that has not looked yet.
func New(opt Options) *Watch { return &Watch{opt: opt, spent: map[chat.ID]reading{}} }

// Run looks at the awake chats until ctx ends. shortest is the shortest sleep_after of all
// profiles; zero is none.
func (w *Watch) Run(ctx context.Context, shortest time.Duration) {
	every := lookEvery
	if shortest > 0 {
		every = min(every, max(minInterval, shortest/4))
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Look(ctx)
		}
	}
}

// Look records which chats are in use, and puts those to sleep that are idle for too long.
func (w *Watch) Look(ctx context.Context) {
	chats, now := w.opt.Awake(), time.Now()
	for _, c := range chats {
		known := w.knows(c.ID)
		if w.atWork(c.ID, now, true) {
			w.opt.Use(c.ID, now)
			continue
		}
		idle := now.Sub(c.Used)
		if !known || c.SleepAfter == 0 || idle < c.SleepAfter || ctx.Err() != nil {
			continue // of one that is not known yet, as after a restart, it cannot tell
		}
		why := fmt.Sprintf("idle for %s, and sleep_after of its profile is %s",
			idle.Round(time.Second), c.SleepAfter)
		if _, err := w.sleep(c, why); err != nil {
			w.opt.Log.Warn("an idle chat stays awake", "chat", c.ID, "error", err)
		}
	}
	w.forget(chats)
}

// atWork reports whether the chat does something. It compares its CPU time with that of the last
// look, and remembers it for the next if remember is set.
func (w *Watch) atWork(id chat.ID, now time.Time, remember bool) bool {
	works := w.opt.Work(id) != ""
	cpu, err := w.opt.CPU(id)
	if err != nil { // its session has just ended
		return works
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.spent[id]
	passed := now.Sub(last.at)
	if remember {
		w.spent[id] = reading{cpu, now}
	}
	if !known || cpu < last.cpu || passed < minInterval { // cpu is less in a later session
		return works
	}
	return works || 100*(cpu-last.cpu) > trickle*passed
}

// knows reports whether the chat's CPU time was read before.
func (w *Watch) knows(id chat.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, known := w.spent[id]
	return known
}

// forget drops the readings of chats that are asleep.
func (w *Watch) forget(awake []Chat) {
	ids := make(map[chat.ID]bool, len(awake))
	for _, c := range awake {
		ids[c.ID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.spent {
		if !ids[id] {
			delete(w.spent, id)
		}
	}
}

func (w *Watch) sleep(c Chat, why string) (bool, error) {
	return w.opt.Sleep(c, why, func() bool { return !w.atWork(c.ID, time.Now(), false) })
}

// MakeRoom puts the longest idle chat to sleep, of one owner or, if owner is empty, of all, because
// another chat is to wake. If none can sleep it returns what keeps them awake, as in "12 at work, 3
// in use within 10s".
func (w *Watch) MakeRoom(ctx context.Context, owner string) (
	made bool, awake string,
) {
	chats := w.opt.Awake()
	slices.SortFunc(chats, func(a, b Chat) int { return a.Used.Compare(b.Used) })
	var why reasons
	for _, c := range chats {
		idle := time.Since(c.Used)
		switch {
		case ctx.Err() != nil: // nobody wants the place any more
			return false, "the caller has left"
		case owner != "" && c.Owner != owner:
			continue
		case c.KeepAwake:
			why.kept++
			continue
		case w.atWork(c.ID, time.Now(), false):
			w.opt.Use(c.ID, time.Now())
			why.working++
			continue
		case idle < minIdle:
			why.recent++
			continue
		}
		words := fmt.Sprintf("idle for %s, and another chat needed its place",
			idle.Round(time.Second))
		switch slept, err := w.sleep(c, words); {
		case err != nil: // it keeps no other from making room
			w.opt.Log.Warn("a chat does not make room", "chat", c.ID, "error", err)
			why.stuck++
		case slept:
			return true, ""
		default: // another caller acts on it
			why.working++
		}
	}
	return false, why.String()
}

// reasons count the chats that make no room, by the reason.
type reasons struct{ working, recent, kept, stuck int }

// String is the part of a sentence.
func (r reasons) String() string {
	var parts []string
	for _, p := range []struct {
		n     int
		words string
	}{
		{r.working, "at work"},
		{r.recent, fmt.Sprintf("in use within %s", minIdle)},
		{r.kept, "kept awake (keep_awake)"},
		{r.stuck, "not to be ended: see chatd's log"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.words))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "the others are waking")
}
