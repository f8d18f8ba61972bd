package diskquota

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

const (
	// countLooks is how many looks later a chat is counted again, at the earliest.
	countLooks = 6
	// farOver is how many percent of its limit a chat may have where nothing enforces it, and
	// nearlyFull how few percent of a file system are free when 100 is the most.
	farOver    = 200
	nearlyFull = 5
	// fewNames is how many names a chat has that is counted beside the large ones.
	fewNames = 1 << 14
	// mostNames bounds the count of a chat without a bound on inodes.
	mostNames = 1 << 20
	// countCost is what it costs to begin a count, in names.
	countCost = 1 << 10
)

// count is what was counted of a chat.
type count struct {
	// amounts are by directory: one may get a quota, and is the kernel's to count then.
	amounts map[string]Amount
	// names are what the next count may cost: those that the last met, or half of what the one
	// before cost. A chat that makes and removes many in turn is no cheap one.
	names uint64
	// at is when the last whole count began, and seen when the chat was first seen.
	at, seen time.Time
}

// in is what was counted in dirs; some is false if nothing was there.
func (k count) in(dirs []string) (sum Amount, some bool) {
	for _, dir := range dirs {
		a, counted := k.amounts[dir]
		sum, some = sum.Plus(a), some || counted
	}
	return sum, some
}

// urgency is higher the longer a chat waits for its count, in proportion to what that costs: one
// with many names waits longer, and none for ever (highest response ratio next).
func (k count) urgency() float64 {
	waits := time.Since(k.seen)
	if !k.at.IsZero() {
		waits = time.Since(k.at)
	}
	return waits.Seconds() / float64(k.names+countCost)
}

// CountSmall counts chats with few files, and CountLarge those with many, the most urgent first:
// no chat with few waits for one with many. They walk the trees of awake chats, of those that were
// never counted and of those that were used since, where file systems enforce nothing.
func (w *Watch) CountSmall(ctx context.Context) { w.countAll(ctx, false) }

// CountLarge: see CountSmall.
func (w *Watch) CountLarge(ctx context.Context) { w.countAll(ctx, true) }

// countAll ends in time for the next to find what has become more urgent.
func (w *Watch) countAll(ctx context.Context, large bool) {
	dirs, began := w.opt.Disks.Unbounded(), time.Now()
	if len(dirs) == 0 {
		return
	}
	for _, c := range w.due(large) {
		if ctx.Err() != nil || time.Since(began) > w.opt.Every {
			return
		}
		w.count(ctx, c, dirs, large)
	}
}

// due are the chats to count, large ones or small ones, the most urgent first.
func (w *Watch) due(large bool) (chats []Chat) {
	urgency := map[chat.ID]float64{}
	all := w.opt.Chats()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range all {
		k := w.of(c.ID)
		late := time.Since(k.at) >= countLooks*w.opt.Every && (c.Awake || c.Used.After(k.at))
		if c.Limit == (Amount{}) || k.names > w.few != large || !k.at.IsZero() && !late {
			continue
		}
		urgency[c.ID] = k.urgency()
		chats = append(chats, c)
	}
	slices.SortStableFunc(chats, func(a, b Chat) int {
		return cmp.Compare(urgency[b.ID], urgency[a.ID])
	})
	return chats
}

// count counts one chat; one that turns out to be large is left to the next CountLarge.
func (w *Watch) count(ctx context.Context, c Chat, dirs []string, large bool) {
	now := count{amounts: map[string]Amount{}, at: time.Now()}
	most := c.most()
	if !large {
		most = min(most, w.few+1)
	}
	for _, dir := range dirs {
		here, err := Walk(ctx, dir, c.Tree(dir), c.UID, most)
		if err != nil {
			w.opt.Log.Debug("cannot count the disk of a chat", "chat", c.ID, "error", err)
			return
		}
		now.amounts[dir] = here
		if now.names += here.Inodes; now.names > w.few && !large {
			w.mu.Lock()
			w.of(c.ID).names = c.most() // or less, which the next count finds
			w.mu.Unlock()
			return
		}
	}
	w.counted(c, dirs, now)
}

// most is how many names of a chat are counted in one directory: more than farOver of its limit
// says no more.
func (c Chat) most() uint64 {
	if c.Limit.Inodes == 0 {
		return mostNames
	}
	return c.Limit.Inodes*farOver/100 + 1
}

// counted keeps a count, and tells of a chat that has grown far over its limit.
func (w *Watch) counted(c Chat, dirs []string, now count) {
	held, _ := now.in(dirs)
	why := w.far(held, c.Limit, dirs)
	w.mu.Lock()
	k := w.of(c.ID)
	now.seen, now.names = k.seen, max(now.names, k.names/2)
	k.count = now
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

// Over says why a chat with that limit is far over it where nothing enforces it, by the last count;
// empty if it is not.
func (w *Watch) Over(id chat.ID, limit Amount) string {
	dirs := w.opt.Disks.Unbounded()
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.chats[id]; k != nil {
		held, _ := k.in(dirs)
		return w.far(held, limit, dirs)
	}
	return ""
}

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
