package idle

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
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
	// FreezeAfter is how long it may be idle before it is frozen; zero is for ever. Frozen is what
	// it is.
	FreezeAfter time.Duration
	Frozen      chat.Frozen
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
	// Freeze freezes a chat until its next use. It reports false, and does nothing, as Sleep does.
	Freeze func(c Chat, why string) (bool, error)
	Log    *slog.Logger
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
	chat.Every(ctx, every, func() { w.Look(ctx) })
}

// Look records which chats are in use, and puts those to sleep that are idle for too long.
func (w *Watch) Look(ctx context.Context) {
	chats, now := w.opt.Awake(), time.Now()
	for _, c := range chats {
		does, known := w.work(c.ID, now, true)
		if does != "" {
			w.opt.Use(c.ID, now)
			continue
		}
		if !known || c.Frozen == chat.FrozenUntilThawed || ctx.Err() != nil {
			continue // of one that is not known yet, as after a restart, it cannot tell
		}
		if err := w.sleepOrFreeze(c, now.Sub(c.Used)); err != nil {
			w.opt.Log.Warn("an idle chat stays awake", "chat", c.ID, "error", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.spent, func(_ chat.ID, r reading) bool { return !r.at.Equal(now) }) // it is asleep
}

// sleepOrFreeze puts a chat to sleep that is idle for sleep_after, and freezes one that is for
// freeze_after.
func (w *Watch) sleepOrFreeze(c Chat, idle time.Duration) (err error) {
	words := func(key string, d time.Duration) string {
		return fmt.Sprintf("idle for %s, and %s of its profile is %s",
			idle.Round(time.Second), key, d)
	}
	switch {
	case c.SleepAfter > 0 && idle >= c.SleepAfter:
		_, err = w.sleep(c, words("sleep_after", c.SleepAfter))
	case c.FreezeAfter > 0 && idle >= c.FreezeAfter && c.Frozen == "":
		_, err = w.opt.Freeze(c, words("freeze_after", c.FreezeAfter))
	}
	return err
}

// work says what the chat does; empty is nothing. It compares its CPU time with that of the last
// look, if it is known, and remembers it for the next if remember is set.
func (w *Watch) work(id chat.ID, now time.Time, remember bool) (does string, known bool) {
	does = w.opt.Work(id)
	cpu, err := w.opt.CPU(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.spent[id]
	if err != nil { // its session has just ended
		return does, known
	}
	if remember {
		w.spent[id] = reading{cpu, now}
	}
	// In a later session cpu is less.
	if passed := now.Sub(last.at); known && does == "" && passed >= minInterval &&
		100*(cpu-last.cpu) > trickle*passed {
		does = "CPU time"
	}
	return does, known
}

func (w *Watch) sleep(c Chat, why string) (bool, error) {
	return w.opt.Sleep(c, why, func() bool {
		does, _ := w.work(c.ID, time.Now(), false)
		return does == ""
	})
}

// OwnPrograms says which programs a chat has started itself, by the processes of its session; empty
// is none.
func OwnPrograms(pids map[int]string, uid uint32) string {
	if n := len(pids); n > sessionProcesses {
		return fmt.Sprintf("%d processes", n)
	}
	for pid := range pids {
		p, err := sys.ReadProcess(pid)
		if err == nil && p.UID == uid && p.State != 'Z' && !slices.Contains(sessionNames, p.Name) {
			return "the program " + chat.Quote(p.Name)
		}
	}
	return ""
}

// sessionNames are the names of the processes that each session has, with the shell at its prompt.
// A shell that waits for a command has that as its child.
var sessionNames = []string{"bwrap", "chatd-shim", "tmux: server", "bash"}

// sessionProcesses is more than these are. It bounds how many are looked at for one chat.
const sessionProcesses = 8
