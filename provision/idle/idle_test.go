package idle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// host has awake chats without processes.
type host struct {
	chats  map[chat.ID]*Chat
	work   map[chat.ID]string
	cpu    map[chat.ID]time.Duration
	locked map[chat.ID]bool // another caller acts on it
	slept  []string         // the id, and why
	froze  []string         // the same
	broken error            // of sleep
	stuck  chat.ID          // that cannot be put to sleep
}

func newHost() (*host, *Watch) {
	h := &host{
		chats: map[chat.ID]*Chat{}, work: map[chat.ID]string{}, cpu: map[chat.ID]time.Duration{},
		locked: map[chat.ID]bool{},
	}
	return h, New(Options{
		Awake: h.awake, Work: func(id chat.ID) string { return h.work[id] },
		CPU: func(id chat.ID) (time.Duration, error) {
			if h.chats[id] == nil {
				return 0, chat.ErrNotFound
			}
			return h.cpu[id], nil
		},
		Use: func(id chat.ID, at time.Time) { h.chats[id].Used = at }, Sleep: h.sleep,
		Freeze: h.freeze,
		Log:    slog.New(slog.DiscardHandler),
	})
}

func (h *host) awake() (all []Chat) {
	for _, c := range h.chats {
		all = append(all, *c)
	}
	return all
}

func (h *host) sleep(c Chat, why string, still func() bool) (bool, error) {
	id := c.ID
	if h.locked[id] || !still() {
		return false, nil
	}
	if id == h.stuck {
		return true, errors.New("cannot end it")
	}
	if h.broken == nil {
		h.slept = append(h.slept, string(id)+" "+why)
		delete(h.chats, id)
	}
	return true, h.broken
}

// wake adds a chat that is used now.
func (h *host) wake(c Chat) {
	c.Used = time.Now()
	h.chats[c.ID], h.cpu[c.ID] = &c, 0
}

// asleep returns the ids of the chats that were put to sleep, in order.
func (h *host) asleep() (ids []string) {
	for _, line := range h.slept {
		id, _, _ := strings.Cut(line, " ")
		ids = append(ids, id)
	}
	return ids
}

// TestLook: a chat sleeps once nobody has used it for sleep_after. A program, or more CPU time than
// a trickle, is use, and moves used_at; a trickle is none. Without sleep_after a chat stays awake.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		for _, id := range []chat.ID{"idle", "works", "spins", "trickles", "used", "locked"} {
			h.wake(Chat{ID: id, SleepAfter: time.Hour})
		}
		h.wake(Chat{ID: "forever"})
		h.work["works"], h.locked["locked"] = "the program vim", true
		began := time.Now()
		for range 121 {
			time.Sleep(lookEvery)
			h.cpu["spins"] += lookEvery * trickle / 100 * 2
			h.cpu["trickles"] += lookEvery * trickle / 100 / 2
			if time.Since(began) < 45*time.Minute {
				h.chats["used"].Used = time.Now()
			}
			w.Look(t.Context())
		}
		slices.Sort(h.slept)
		const why = " idle for 1h0m0s, and sleep_after of its profile is 1h0m0s"
		want := []string{"idle" + why, "trickles" + why}
		must.True(t, slices.Equal(h.slept, want), "asleep are %q, want %q", h.slept, want)
		if now := time.Now(); h.chats["works"].Used != now || h.chats["spins"].Used != now {
			t.Errorf("what works is used at %v, what spins at %v, now is %v",
				h.chats["works"].Used, h.chats["spins"].Used, now)
		}
		delete(h.work, "works")
		delete(h.locked, "locked")
		time.Sleep(time.Hour) // in which nothing looked: the CPU time of "spins" is a trickle now
		w.Look(t.Context())
		expect.True(t, len(h.slept) == 6 && h.chats["forever"] != nil, "asleep are %q", h.slept)
		expect.True(t, len(w.spent) <= len(h.chats)+4, "readings of %d chats are kept", len(w.spent))
		time.Sleep(lookEvery)
		w.Look(t.Context())
		expect.True(t, len(w.spent) == 1, "readings are kept of %v", w.spent)
	})
}

// TestLookAfterWake: a new session begins to count its CPU time again.
func TestLookAfterWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "a", SleepAfter: time.Minute})
		h.cpu["a"] = time.Hour
		w.Look(t.Context())
		h.wake(Chat{ID: "a", SleepAfter: time.Minute})
		for range 3 {
			time.Sleep(lookEvery)
			w.Look(t.Context())
		}
		if !slices.Equal(h.asleep(), []string{"a"}) {
			t.Errorf("asleep are %q", h.slept)
		}
	})
}

// TestLookGoesOn: a chat that cannot be put to sleep keeps no other awake.
func TestLookGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "a", SleepAfter: time.Minute})
		h.wake(Chat{ID: "b", SleepAfter: time.Minute})
		w.Look(t.Context())
		time.Sleep(time.Hour)
		h.broken = errors.New("cannot end it")
		w.Look(t.Context())
		h.broken = nil
		w.Look(t.Context())
		expect.True(t, len(h.chats) <= 0, "asleep are %q", h.slept)
	})
}

// TestRun: the looks are as frequent as the shortest sleep_after wants, and end with ctx.
func TestRun(t *testing.T) {
	for _, tt := range []struct{ shortest, sleeps time.Duration }{
		{0, 0},
		{time.Second, 3 * time.Second},
		{time.Minute, 75 * time.Second},
		{time.Hour, time.Hour + lookEvery},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, w := newHost()
			h.wake(Chat{ID: "a", SleepAfter: tt.shortest})
			ctx, stop := context.WithCancel(t.Context())
			go w.Run(ctx, tt.shortest)
			time.Sleep(cmp.Or(tt.sleeps, 24*time.Hour))
			stop()
			synctest.Wait()
			expect.Equal(t, len(h.slept) == 1, (tt.shortest > 0),
				"sleep_after %s: asleep after %s", tt.shortest, tt.sleeps)
		})
	}
}

// one is enough where each chat is as good as another.
func one([]chat.ID, bool) bool { return true }

// TestMakeRoomEnough: none sleeps where all idle chats together are not enough. Those that were
// just used may be soon, if they are enough then. One that cannot be ended does not count.
func TestMakeRoomEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		for _, id := range []chat.ID{"idle1", "idle2", "works"} {
			h.wake(Chat{ID: id})
			time.Sleep(time.Minute)
		}
		h.wake(Chat{ID: "recent"})
		h.work["works"] = "a run"
		room := func(n int, made, soon bool) {
			t.Helper()
			fits := func(asleep []chat.ID, _ bool) bool { return len(asleep)+len(h.slept) >= n }
			m, s, awake := w.MakeRoom(t.Context(), "", fits)
			said := strings.Contains(awake, "idle, which is not enough")
			expect.True(t, m == made && s == soon && said != made,
				"for %d: room %t, soon %t, %q", n, m, s, awake)
		}
		room(4, false, false)
		room(3, false, true)
		h.locked["idle1"] = true
		room(2, false, true)
		expect.True(t, len(h.slept) <= 0, "for nothing sleep %q", h.slept)
		h.locked["idle1"] = false
		room(2, true, false)
		room(2, true, false)
		if !slices.Equal(h.asleep(), []string{"idle1", "idle2"}) {
			t.Errorf("asleep are %q", h.slept)
		}
	})
}

// TestMakeRoom: the longest idle chat sleeps first, of the owner or of all; one at work, one that
// was in use a moment ago, one that another caller acts on and one with keep_awake never.
func TestMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		for _, c := range []Chat{
			{ID: "kept", Owner: "ada", KeepAwake: true}, {ID: "works", Owner: "ada"},
			{ID: "locked", Owner: "ada"}, {ID: "old", Owner: "bob"}, {ID: "older", Owner: "ada"},
			{ID: "old2", Owner: "ada"}, {ID: "spins", Owner: "ada"},
		} {
			h.wake(c)
			time.Sleep(time.Minute)
		}
		h.work["works"], h.locked["locked"] = "a run", true
		w.Look(t.Context())
		time.Sleep(minInterval)
		h.cpu["spins"] = minInterval
		h.wake(Chat{ID: "new", Owner: "ada"})
		room := func(owner, want string) {
			t.Helper()
			made, _, awake := w.MakeRoom(t.Context(), owner, one)
			expect.True(t, made == (want != ""), "room by %q: %t, %q", owner, made, awake)
			if n := len(h.slept); made && !strings.HasPrefix(h.slept[n-1], want+" idle for ") {
				t.Errorf("asleep are %q, want %s last", h.slept, want)
			}
		}
		room("ada", "older")
		room("", "old")
		room("ada", "old2")
		room("bob", "")
		const want = "3 at work, 1 in use within 10s, 1 kept awake (keep_awake)"
		_, _, awake := w.MakeRoom(t.Context(), "", one)
		expect.True(t, awake == want, "no room: %q, want %q", awake, want)
	})
}

// TestMakeRoomForNobody: a caller who has left ends no session.
func TestMakeRoomForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "idle"})
		time.Sleep(time.Minute)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		made, _, _ := w.MakeRoom(ctx, "", one)
		expect.True(t, !made && len(h.slept) <= 0, "%t, asleep are %q", made, h.slept)
	})
}

// TestNobodyAwake: places that only waking chats have are said to be theirs.
func TestNobodyAwake(t *testing.T) {
	_, w := newHost()
	made, soon, awake := w.MakeRoom(t.Context(), "", one)
	expect.True(t, !made && soon && awake != "", "%t, %q", made, awake)
}

// TestMakeRoomGoesOn: a chat that cannot be ended keeps no other from making room.
func TestMakeRoomGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "stuck"})
		time.Sleep(time.Minute)
		h.wake(Chat{ID: "idle"})
		time.Sleep(time.Minute)
		h.stuck = "stuck"
		made, _, awake := w.MakeRoom(t.Context(), "", one)
		if !made || !slices.Equal(h.asleep(), []string{"idle"}) {
			t.Errorf("%t, %q, asleep are %q", made, awake, h.slept)
		}
		made, _, awake = w.MakeRoom(t.Context(), "", one)
		expect.True(t, !made && strings.Contains(awake, "1 not to be ended"), "%t, %q", made, awake)
	})
}

// TestMakeRoomSaysWho: a refusal names what is at work, with what it does: to an operator all of a
// few, to a bridge its own alone. It says whether a place may be free before long.
func TestMakeRoomSaysWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "a1", Owner: "ada"})
		h.wake(Chat{ID: "b1", Owner: "bob"})
		h.work["a1"], h.work["b1"] = "a run", `the program "vim"`
		refused := func(name string, role chat.Role, wantSoon bool, want string) {
			t.Helper()
			ctx := chat.WithCaller(t.Context(), chat.Caller{Name: name, Role: role})
			made, soon, awake := w.MakeRoom(ctx, "", one)
			expect.True(t, !made && soon == wantSoon && awake == want,
				"%s: room %t, soon %t, %q, want %q", name, made, soon, awake, want)
			time.Sleep(time.Second)
		}
		refused("ada", chat.RoleBridge, false, "2 at work (a1: a run and more)")
		refused("cyd", chat.RoleBridge, false, "2 at work")
		refused("root", chat.RoleOperator, false, `2 at work (a1: a run, b1: the program "vim")`)
		h.wake(Chat{ID: "b2", Owner: "bob"})
		refused("cyd", chat.RoleBridge, true, "2 at work, 1 in use within 10s")
		for i := range 2 * maxNames {
			id := chat.ID(fmt.Sprint("c", i))
			h.wake(Chat{ID: id})
			h.work[id] = "a run"
		}
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		_, _, awake := w.MakeRoom(ctx, "", one)
		n := strings.Count(awake, ": ")
		expect.True(t, n == maxNames && strings.Contains(awake, " and more)"), "of many: %q", awake)
	})
}
