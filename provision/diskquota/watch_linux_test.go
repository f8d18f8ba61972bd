package diskquota

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// watched is a watch over one chat, which writes down what it is told.
func watched(h *host, c *Chat, dirs ...string) (w *Watch, told *[]string) {
	told = &[]string{}
	d := h.disks()
	if len(dirs) > 0 {
		d.dirs = dirs
	}
	w = NewWatch(Options{
		Disks: d, Chats: func() []Chat { return []Chat{*c} }, Log: slog.New(slog.DiscardHandler),
		Report: func(_ Chat, _ chat.DiskUsage, level int) { *told = append(*told, fmt.Sprint(level)) },
		Over:   func(_ Chat, why string) { *told = append(*told, why) },
	})
	w.free = func(string) int { return 50 }
	return w, told
}

// TestReports: 80 and 100 percent are reported once when they are reached, and again only after the
// chat has left them and some minutes have passed. A chat that sleeps is not looked at.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.quota[1] = true
		c := &Chat{ID: "a", UID: uid, Limit: Amount{Bytes: 100 << 10}, Awake: true}
		w, told := watched(h, c)
		look := func(kib uint64, want ...string) {
			t.Helper()
			*told = nil
			h.blocks[1][uid] = dqblk{bytes: kib << 10}
			w.Look(t.Context())
			if !slices.Equal(*told, want) {
				t.Errorf("at %d %%: %q, want %q", kib, *told, want)
			}
		}
		time.Sleep(time.Hour)
		look(79)
		look(80, "80")
		look(85)
		look(100, "100")
		look(97)
		look(100)
		look(10)
		look(100) // too soon
		time.Sleep(reportEvery)
		look(100, "100")
		look(10)
		c.Awake = false
		time.Sleep(reportEvery)
		look(100)
	})
}

// TestFarOver: where nothing is enforced, a chat that has twice its limit is told of once, again
// only when it has more, and not while it sleeps. One over its limit is, too, where the file system
// is nearly full.
func TestFarOver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "chat", "file")
	must.Do(t, os.Mkdir(filepath.Dir(file), 0o700))
	h := newHost()
	c := &Chat{
		ID: "a", UID: uint32(os.Getuid()), Limit: Amount{Bytes: 1 << 20}, Awake: true,
		Tree: func(string) string { return "chat" },
	}
	w, told := watched(h, c, dir)
	count := func(mib int64, want int) {
		t.Helper()
		*told = nil
		allocate(t, file, mib<<20)
		if k := w.chats[c.ID]; k != nil {
			k.at = k.at.Add(-countLooks * lookEvery)
		}
		w.CountSmall(t.Context())
		if len(*told) != want {
			t.Errorf("with %d MiB: %q, want %d", mib, *told, want)
		}
	}
	count(1, 0)
	count(3, 1)
	if why := w.Over(c.ID, c.Limit); !strings.Contains(why, "30") {
		t.Errorf("over because of %q", why)
	}
	count(3, 0)
	count(2, 0) // it is cleaning up
	expect.True(t, w.Over(c.ID, c.Limit) != "", "a chat with twice its limit is not over it")
	count(4, 1)
	u, err := w.Of(*c)
	expect.True(t, err == nil && u.Bytes >= 4<<20 && u.CountedAt != nil && u.Percent >= 400,
		"it has %+v, %v", u, err)
	count(1, 0)
	if why := w.Over(c.ID, c.Limit); why != "" {
		t.Errorf("after cleaning up: %s", why)
	}
	c.Limit.Bytes = 700 << 10
	count(1, 0)
	w.free = func(string) int { return nearlyFull - 1 }
	count(1, 1)
	w.Forget(c.ID)
	expect.True(t, w.Over(c.ID, c.Limit) == "", "a reaped chat is remembered")
	c.Awake = false
	count(9, 0)
}

// TestCountIsBounded: an awake chat is not walked again before a minute has passed, a sleeping one
// once and when it was used since, and none where every file system enforces limits.
func TestCountIsBounded(t *testing.T) {
	h := newHost()
	dir := t.TempDir()
	h.mount[dir] = 1
	none := func(string) string { return "x" }
	c := &Chat{ID: "a", Limit: Amount{Bytes: 1}, Awake: true, Tree: none}
	w, _ := watched(h, c, dir)
	w.CountSmall(t.Context())
	due := func(when string, want int) {
		t.Helper()
		if got := w.due(false); len(got) != want {
			t.Errorf("%s %d are due, want %d", when, len(got), want)
		}
	}
	due("immediately", 0)
	w.chats["a"].at = time.Now().Add(-countLooks * lookEvery)
	due("after a minute", 1)
	c.Awake = false
	due("asleep", 0)
	c.Used = time.Now()
	due("asleep, after a file tool or a short wake", 1)
	w.chats["a"].at = time.Now()
	c.Used = time.Now()
	due("too soon after the last", 0)
	w.Forget("a")
	h.quota[1] = true
	w.CountSmall(t.Context())
	expect.True(t, len(w.chats) == 0, "a bounded chat was walked")
}

// TestOverByPresentLimit: a chat is bound to clean up by what it may have now, and not where the
// kernel enforces limits meanwhile, whose numbers then are the whole.
func TestOverByPresentLimit(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "chat"), 0o700))
	allocate(t, filepath.Join(dir, "chat", "file"), 4<<20)
	h := newHost()
	h.mount[dir] = 1
	c := &Chat{ID: "a", UID: uint32(os.Getuid()), Limit: Amount{Bytes: 1 << 20},
		Tree: func(string) string { return "chat" }}
	w, _ := watched(h, c, dir)
	w.CountSmall(t.Context())
	expect.True(t, w.Over(c.ID, c.Limit) != "", "a chat with four times its limit is not over it")
	if why := w.Over(c.ID, Amount{Bytes: 4 << 20}); why != "" {
		t.Errorf("after its limit was raised: %s", why)
	}
	h.quota[1] = true
	h.blocks[1][c.UID] = dqblk{bytes: 5 << 20}
	if why := w.Over(c.ID, c.Limit); why != "" {
		t.Errorf("with a quota: %s", why)
	}
	u, err := w.Of(*c)
	expect.True(t, err == nil && u.Bytes == 5<<20 && u.CountedAt == nil,
		"with a quota it has %+v, %v", u, err)
}

// TestSmallDoNotWait: a chat with few files is counted while one with many is, and one that turns
// out to have many is left to the count of those.
func TestSmallDoNotWait(t *testing.T) {
	dir := t.TempDir()
	w := NewWatch(Options{Disks: newHost().disks(), Log: slog.New(slog.DiscardHandler)})
	w.opt.Disks.dirs, w.free, w.few = []string{dir}, func(string) int { return 50 }, 10
	counted := make(chan struct{})
	large := Chat{ID: "large", UID: uint32(os.Getuid()), Limit: Amount{Bytes: 1}, Awake: true}
	small := large
	small.ID, small.Tree = "small", func(string) string { return "small" }
	large.Tree = func(string) string { <-counted; return "large" } // its count takes long
	w.opt.Chats = func() []Chat { return []Chat{large, small} }
	w.chats["large"] = &known{count: count{names: w.few + 1, seen: time.Now()}}
	synctest.Test(t, func(t *testing.T) { // which fails where all wait
		counted = make(chan struct{})
		go w.CountLarge(t.Context())
		w.CountSmall(t.Context())
		expect.True(t, !w.chats["small"].at.IsZero() && w.chats["large"].at.IsZero(),
			"want the small one counted, and the large one not yet")
		close(counted)
	})
	must.Do(t, os.Mkdir(filepath.Join(dir, "small"), 0o700))
	for i := range w.few {
		must.Do(t, os.Symlink("x", filepath.Join(dir, "small", fmt.Sprint(i))))
	}
	w.opt.Chats = func() []Chat { return []Chat{small} }
	w.Forget("small")
	synctest.Test(t, func(t *testing.T) { // where rests take no time
		w.CountSmall(t.Context())
		if k := w.chats["small"]; !k.at.IsZero() || len(w.due(false)) > 0 || len(w.due(true)) != 1 {
			t.Errorf("a chat with many files is counted as %+v", k)
		}
	})
}

// TestOrderOfCounts: those who wait long for what their count costs come first, so that many chats
// with many names do not keep the counts of others old, and are counted themselves.
func TestOrderOfCounts(t *testing.T) {
	now := time.Now()
	chats := []Chat{{ID: "huge"}, {ID: "medium"}, {ID: "old"}, {ID: "new"}}
	w := NewWatch(Options{Disks: newHost().disks(), Chats: func() []Chat { return chats }})
	for i, k := range []count{
		{names: 1 << 20, at: now.Add(-10 * time.Minute)},
		{names: 1 << 16, at: now.Add(-2 * time.Minute)},
		{names: 1 << 20, at: now.Add(-3 * time.Hour)},
		{names: 1 << 20, seen: now.Add(-time.Minute)},
	} {
		chats[i].Awake, chats[i].Limit = true, Amount{Bytes: 1}
		w.chats[chats[i].ID] = &known{count: k}
	}
	var order []string
	for _, c := range w.due(true) {
		order = append(order, string(c.ID))
	}
	if got := strings.Join(order, " "); got != "old medium huge new" {
		t.Errorf("they are counted in the order %s", got)
	}
	w.counted(chats[0], nil, count{names: 10, at: now})
	if k := w.chats["huge"]; k.names != 1<<19 {
		t.Errorf("one that made and removed a million names is taken for one of %d", k.names)
	}
}

// TestWalk counts blocks and not sizes, a file with two names once, and what belongs to the uid
// alone; it follows no link and stops at a bound.
func TestWalk(t *testing.T) {
	must.Root(t, "it changes owners")
	parent := t.TempDir()
	home := filepath.Join(parent, "home")
	deep := filepath.Join(home, strings.Repeat("d/", 64+20))
	hidden, sparse := filepath.Join(deep, "hidden"), filepath.Join(home, "sparse")
	for _, err := range []error{
		os.MkdirAll(deep, 0o700), os.WriteFile(hidden, make([]byte, 1<<20), 0o600),
		os.Symlink("/usr", filepath.Join(home, "link")), os.Mkdir(filepath.Join(home, "closed"), 0),
		os.WriteFile(sparse, nil, 0o600), os.Truncate(sparse, 1<<40),
	} {
		must.Do(t, err)
	}
	big := filepath.Join(home, "closed", "big")
	allocate(t, big, 8<<20)
	must.Do(t, os.Link(big, filepath.Join(home, "second name")))
	chown(t, home)
	allocate(t, filepath.Join(home, "root's"), 8<<20)
	got, err := Walk(t.Context(), parent, "home", uid, 1<<20)
	// The top and 64 below it, and 5 beside them of which one has two names.
	expect.True(t, err == nil && got.Bytes >= 8<<20 && got.Bytes <= 9<<20 && got.Inodes == 1+64+5,
		"%+v, %v", got, err)
	if got, err := Walk(t.Context(), parent, "nobody's", uid, 10); err != nil || got != (Amount{}) {
		t.Errorf("of no tree: %+v, %v", got, err)
	}
	for i := range 3 * batch {
		must.Do(t, os.WriteFile(filepath.Join(home, fmt.Sprint(i)), nil, 0o600))
	}
	chown(t, home)
	if got, err := Walk(t.Context(), parent, "home", uid, 10); err != nil || got.Inodes > 10+batch {
		t.Errorf("a walk bounded to 10: %+v, %v", got, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Walk(ctx, parent, "home", uid, 1<<20); err == nil {
		t.Error("a walk goes on after its end")
	}
	must.Do(t, os.Symlink(home, filepath.Join(parent, "away")))
	if _, err := Walk(t.Context(), parent, "away", uid, 10); err == nil {
		t.Error("a walk follows a link")
	}
}

func chown(t *testing.T, tree string) {
	t.Helper()
	err := filepath.WalkDir(tree, func(path string, _ os.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "root's") {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	must.Do(t, err)
}

// allocate gives a file that many bytes of blocks.
func allocate(t *testing.T, file string, n int64) {
	t.Helper()
	f := must.Get(os.Create(file))(t)
	defer f.Close()
	must.Do(t, unix.Fallocate(int(f.Fd()), 0, 0, n))
}
