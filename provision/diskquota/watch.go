package diskquota

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// lookEvery is how often the kernel is asked what awake chats have.
	lookEvery = 10 * time.Second
	// reportEvery is the shortest time between two reports of the same level: a chat may fill and
	// empty its disk as often as it likes.
	reportEvery = 10 * time.Minute
)

// levels are the percentages that are reported.
var levels = [...]int{80, 100}

// Chat is a chat whose disk is watched. Tree is the name of what it has in a directory.
type Chat struct {
	ID    chat.ID
	UID   uint32
	Limit Amount
	Tree  func(dir string) string
	Awake bool
	// Used is when it was last in use: one that sleeps has files written by file tools.
	Used time.Time
}

// Options are the functions by which a [Watch] acts.
type Options struct {
	Disks *Disks
	// Chats returns all chats that are ready.
	Chats func() []Chat
	// Report is told of a chat that has reached one of the levels.
	Report func(c Chat, u chat.DiskUsage, level int)
	// Over is told of an awake chat that is far over its limit, and has more than at the last time.
	Over func(c Chat, why string)
	// Every is the time between two looks; 0 is 10 s.
	Every time.Duration
	Log   *slog.Logger
}

// Watch knows what was counted, and what was reported. Its methods are safe for concurrent use.
type Watch struct {
	opt Options
	// free returns the free percentage of a file system; a test replaces it.
	free func(dir string) int
	few  uint64 // fewNames; a test has less

	mu    sync.Mutex
	chats map[chat.ID]*known
}

// known is what is known of one chat.
type known struct {
	count
	over     Amount // what it had when Over was told
	level    int
	reported [len(levels)]time.Time
}

// NewWatch returns a watch that has not looked yet.
func NewWatch(o Options) *Watch {
	o.Every = cmp.Or(o.Every, lookEvery)
	return &Watch{opt: o, free: freePercent, few: fewNames, chats: map[chat.ID]*known{}}
}

// Run looks and counts until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var both sync.WaitGroup
	for _, act := range []func(context.Context){w.Look, w.CountSmall, w.CountLarge} {
		both.Go(func() { chat.Every(ctx, w.opt.Every, func() { act(ctx) }) })
	}
	both.Wait()
}

// Look reports the awake chats that have reached a level.
func (w *Watch) Look(ctx context.Context) {
	for _, c := range w.opt.Chats() {
		if ctx.Err() != nil {
			return
		}
		if !c.Awake {
			continue
		}
		u, err := w.Of(c)
		if err != nil {
			w.opt.Log.Debug("cannot look at the disk of a chat", "chat", c.ID, "error", err)
			continue
		}
		if u == nil {
			continue
		}
		if level := w.rise(c.ID, u.Percent); level > 0 {
			w.opt.Report(c, *u, level)
		}
	}
}

// Of is what a chat has now: what the kernel says, and what was counted last elsewhere. It is nil if
// no file system has quotas, and nothing was counted yet.
func (w *Watch) Of(c Chat) (*chat.DiskUsage, error) {
	held, used, known, err := w.opt.Disks.Used(c.UID, c.Limit)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := &chat.DiskUsage{Percent: used}
	if k := w.chats[c.ID]; k != nil {
		if counted, some := k.in(w.opt.Disks.Unbounded()); some {
			held, known = held.Plus(counted), true
			u.Percent = max(used, counted.Percent(c.Limit))
			at := k.at.UTC().Truncate(time.Second)
			u.CountedAt = &at
		}
	}
	if u.Bytes, u.Inodes = held.Bytes, held.Inodes; !known {
		return nil, nil
	}
	return u, nil
}

// Forget drops what is known of a chat that was reaped.
func (w *Watch) Forget(id chat.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.chats, id)
}

// rise returns the level that a chat has reached since the last call; 0 if none is to be reported.
// A level is left 5 percent below it.
func (w *Watch) rise(id chat.ID, percent int) (level int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.of(id)
	for i, at := range levels {
		switch {
		case percent < at-5 && k.level >= at:
			k.level = 0
			if i > 0 {
				k.level = levels[i-1]
			}
			return 0
		case percent >= at && k.level < at && time.Since(k.reported[i]) >= reportEvery:
			k.level, k.reported[i], level = at, time.Now(), at
		}
	}
	return level
}

// of is what is known of a chat; the caller holds mu.
func (w *Watch) of(id chat.ID) *known {
	if w.chats[id] == nil {
		w.chats[id] = &known{count: count{seen: time.Now()}}
	}
	return w.chats[id]
}
