package diskquota

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

const (
	// lookEvery is how often the kernel is asked what awake chats have.
	lookEvery = 10 * time.Second
	// countLooks is how many looks later an awake chat is counted again, at the earliest.
	countLooks = 6
	// reportEvery is the shortest time between two reports of the same level: a chat may fill and
	// empty its disk as often as it likes.
	reportEvery = 10 * time.Minute
	// farOver is how many percent of its limit a chat may have where nothing enforces it, and
	// nearlyFull how few percent of a file system are free when 100 is the most.
	farOver    = 200
	nearlyFull = 5
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
}

// Use is what a chat has on disk. CountedAt is zero if all of it is from the kernel.
type Use struct {
	Held    Amount
	Percent int
	// Known is false if no file system has quotas, and nothing was counted yet.
	Known     bool
	CountedAt time.Time
}

// Options are the functions by which a [Watch] acts.
type Options struct {
	Disks *Disks
	// Chats returns all chats that are ready.
	Chats func() []Chat
	// Report is told of a chat that has reached one of the levels.
	Report func(c Chat, u Use, level int)
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

	mu    sync.Mutex
	chats map[chat.ID]*known
}

// known is what is known of one chat.
type known struct {
	counted  Amount
	at       time.Time
	far      string // why it is far over its limit, as of the last count
	over     Amount // what it had when Over was told
	level    int
	reported [len(levels)]time.Time
}

// NewWatch returns a watch that has not looked yet.
func NewWatch(o Options) *Watch {
	o.Every = cmp.Or(o.Every, lookEvery)
	return &Watch{opt: o, free: freePercent, chats: map[chat.ID]*known{}}
}

// Run looks and counts until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { every(ctx, w.opt.Every, w.Look) })
	both.Go(func() { every(ctx, w.opt.Every, w.Count) })
	both.Wait()
}

func every(ctx context.Context, d time.Duration, act func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			act(ctx)
		}
	}
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
		if level := w.rise(c.ID, u.Percent); level > 0 {
			w.opt.Report(c, u, level)
		}
	}
}

// Of is what a chat has now: what the kernel says, and what was counted last elsewhere.
func (w *Watch) Of(c Chat) (Use, error) {
	held, used, known, err := w.opt.Disks.Held(c.UID, c.Limit)
	w.mu.Lock()
	defer w.mu.Unlock()
	u := Use{Held: held, Percent: used, Known: known}
	if k := w.chats[c.ID]; k != nil && !k.at.IsZero() {
		u.Held, u.CountedAt = held.Plus(k.counted), k.at
		u.Known, u.Percent = true, max(used, k.counted.Percent(c.Limit))
	}
	return u, err
}

// Over says why a chat is far over its limit where nothing enforces it, by the last count; empty if
// it is not.
func (w *Watch) Over(id chat.ID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.chats[id]; k != nil {
		return k.far
	}
	return ""
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
		w.chats[id] = &known{}
	}
	return w.chats[id]
}

// Count walks the trees of the awake chats, and of those that were never counted, where file
// systems enforce nothing.
func (w *Watch) Count(ctx context.Context) {
	dirs := w.opt.Disks.Unbounded()
	for _, c := range w.opt.Chats() {
		if len(dirs) == 0 || ctx.Err() != nil {
			return
		}
		if w.due(c) {
			w.count(ctx, c, dirs)
		}
	}
}

// due reports whether a chat is to be counted.
func (w *Watch) due(c Chat) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.of(c.ID).at
	late := time.Since(at) >= countLooks*w.opt.Every
	return c.Limit != Amount{} && (at.IsZero() || c.Awake && late)
}

func (w *Watch) count(ctx context.Context, c Chat, dirs []string) {
	var held Amount
	most := max(c.Limit.Inodes*farOver/100, 1<<20) + 1
	for _, dir := range dirs {
		here, err := Walk(ctx, dir, c.Tree(dir), c.UID, most)
		if err != nil {
			w.opt.Log.Debug("cannot count the disk of a chat", "chat", c.ID, "error", err)
			return
		}
		held = held.Plus(here)
	}
	why := w.far(held, c.Limit, dirs)
	w.mu.Lock()
	k := w.of(c.ID)
	k.counted, k.at, k.far = held, time.Now(), why
	grew := why != "" && (k.over == Amount{} || more(held.Bytes, k.over.Bytes, c.Limit.Bytes) ||
		more(held.Inodes, k.over.Inodes, c.Limit.Inodes))
	switch {
	case why == "":
		k.over = Amount{}
	case grew:
		k.over = held
	}
	w.mu.Unlock()
	if grew && c.Awake {
		w.opt.Over(c, why)
	}
}

// more reports whether a chat has a tenth of its limit more than when Over was told: one that
// cleans up writes a little.
func more(now, then, limit uint64) bool { return limit > 0 && now > then+limit/10 }

// far says why the chat that has held is far over its limit; empty if it is not.
func (w *Watch) far(held, limit Amount, dirs []string) string {
	percent := held.Percent(limit)
	if percent >= farOver {
		return fmt.Sprintf("it has %d %% of what it may have on disk", percent)
	}
	for _, dir := range dirs {
		if free := w.free(dir); percent > 100 && free < nearlyFull {
			return fmt.Sprintf("it has %d %% of what it may have on disk, and %d %% of %s are free",
				percent, free, dir)
		}
	}
	return ""
}

// freePercent is how much of the file system of dir is free for users.
func freePercent(dir string) int {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Blocks == 0 {
		return 100
	}
	return int(st.Bavail * 100 / st.Blocks)
}
