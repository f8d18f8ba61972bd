package shares

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// starter is a host whose chats wake and are then idle; nothing is started. A chat makes room for
// another minIdle after its start.
type starter struct {
	*Shares
	mu      sync.Mutex
	awake   map[chat.ID]Place
	since   map[chat.ID]time.Time
	starts  *quota.Limiter
	started []chat.ID // in order
	most    int       // chats that were awake simultaneously
	memory  uint64    // the most that they had
	working bool      // all are at work
	works   map[chat.ID]bool
	slept   []chat.ID // that made room
}

const (
	startTakes = 60 * time.Millisecond
	minIdle    = 10 * time.Second
)

func newStarter(opt Options) *starter {
	h := &starter{
		awake: map[chat.ID]Place{}, since: map[chat.ID]time.Time{},
		starts: quota.NewLimiter(2, 3*time.Second), works: map[chat.ID]bool{},
	}
	opt.Awake = func() map[chat.ID]Place {
		h.mu.Lock()
		defer h.mu.Unlock()
		return maps.Clone(h.awake)
	}
	opt.MakeRoom = h.makeRoom
	h.Shares = New(opt)
	return h
}

func (h *starter) makeRoom(
	_ context.Context, owner string, fits Fits,
) (made, soon bool, awake string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working {
		return false, false, "all at work"
	}
	var idle, used []chat.ID
	for id, p := range h.awake {
		switch {
		case h.works[id] || owner != "" && p.Owner != owner:
		case time.Since(h.since[id]) < minIdle:
			used = append(used, id)
		default:
			idle = append(idle, id)
		}
	}
	slices.SortFunc(idle, func(a, b chat.ID) int { return h.since[a].Compare(h.since[b]) })
	if len(idle) > 0 && fits(slices.Clone(idle), false) {
		delete(h.awake, idle[0])
		h.slept = append(h.slept, idle[0])
		return true, false, ""
	}
	return false, fits(append(idle, used...), true), "all just used"
}

// wake is a wake as package provision does it: admitted, started in its turn, and counted as awake
// before it is no longer waking.
func (h *starter) wake(ctx context.Context, id chat.ID, p Place) error {
	done, err := h.Wake(ctx, id, p)
	if err != nil {
		return err
	}
	defer done()
	leave, err := h.starts.Enter(ctx, p.Owner, "wake")
	if err != nil {
		return err
	}
	defer leave()
	time.Sleep(startTakes)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.awake[id], h.since[id] = p, time.Now()
	h.started = append(h.started, id)
	h.most, h.memory = max(h.most, len(h.awake)), max(h.memory, memory(h.awake))
	return nil
}

// wakeAll wakes chats of an owner, in order, and fails for each that is refused.
func (h *starter) wakeAll(t *testing.T, wakes *sync.WaitGroup, owner string, n int, memory uint64) {
	ctx := chat.WithCaller(t.Context(), chat.Caller{Name: owner, Role: chat.RoleBridge})
	for i := range n {
		id := chat.ID(fmt.Sprintf("%s %03d", owner, i))
		wakes.Go(func() {
			if err := h.wake(ctx, id, Place{owner, memory}); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		})
		synctest.Wait() // it stands in the line before the next one comes
	}
}

// of are the chats of an owner that started, in order, and how many chats in total had started when
// the last of them had.
func (h *starter) of(owner string) (ids []chat.ID, last int) {
	for i, id := range h.started {
		if strings.HasPrefix(string(id), owner+" ") {
			ids, last = append(ids, id), i+1
		}
	}
	return ids, last
}

// TestThousandWakes: a thousand chats wake simultaneously on a host with a hundred places. All get
// one, those of each owner in order, and an owner with ten chats does not wait for the 910 of
// another that came first.
func TestThousandWakes(t *testing.T) {
	for name, opt := range map[string]Options{
		"max_awake":        {MaxAwake: 100},
		"max_awake_memory": {MaxMemory: 100 * each},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStarter(opt)
				var wakes sync.WaitGroup
				h.wakeAll(t, &wakes, "many", 910, each)
				small := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
				for _, owner := range small {
					h.wakeAll(t, &wakes, owner, 10, each)
				}
				wakes.Wait()
				expect.True(t, len(h.started) == 1000 && h.most <= 100 && h.memory <= 100*each,
					"%d chats woke, at most %d were awake with %s", len(h.started), h.most, size(h.memory))
				for _, owner := range append(small, "many") {
					ids, last := h.of(owner)
					if owner == "many" {
						checkOrder(t, ids)
					} else if last > 100+10*(len(small)+1)+100 {
						t.Errorf("of %s started %q, the last as the %dth", owner, ids, last)
					}
				}
			})
		})
	}
}

// checkOrder fails where a chat started before one that came long before it. As many places as
// there are become free at one moment, and the goroutines that get them go on in any order.
func checkOrder(t *testing.T, ids []chat.ID) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(ids))
	for i, id := range ids {
		if at, _ := slices.BinarySearch(sorted, id); at < i-100 || at > i+100 {
			t.Errorf("%s started as the %dth of its owner", id, i)
			return
		}
	}
}

// TestLineStands: where all chats are at work a wake is refused immediately, and where they are
// used again and again, after roomTimeout; a caller who leaves the line holds up nobody.
func TestLineStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStarter(Options{MaxAwake: 1})
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		must.Do(t, h.wake(ctx, "first", Place{"ada", each}))
		began := time.Now()
		h.working = true
		err := h.wake(ctx, "second", Place{"bob", each})
		if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "all at work") ||
			time.Since(began) > 0 {
			t.Errorf("all at work: %v after %s", err, time.Since(began))
		}
		h.working = false
		leaver, leave := context.WithCancel(ctx)
		var wakes sync.WaitGroup
		wakes.Go(func() {
			expect.Is(t, h.wake(leaver, "leaver", Place{"bob", each}), chat.ErrBusy, "one that left")
		})
		synctest.Wait()
		wakes.Go(func() { must.Do(t, h.wake(ctx, "third", Place{"cyd", each})) })
		synctest.Wait()
		leave()
		wakes.Wait()
		if took := time.Since(began); took > minIdle+2*roomPoll || h.awake["third"].Owner != "cyd" {
			t.Errorf("after %s awake are %v", took, h.awake)
		}
		began = time.Now()
		used, stop := context.WithCancel(t.Context())
		wakes.Go(func() {
			for used.Err() == nil {
				h.mu.Lock()
				h.since["third"] = time.Now()
				h.mu.Unlock()
				time.Sleep(time.Second)
			}
		})
		err = h.wake(ctx, "fourth", Place{"bob", each})
		if took := time.Since(began); !errors.Is(err, chat.ErrBusy) ||
			took < roomTimeout || took > roomTimeout+2*roomPoll {
			t.Errorf("one that is used all the time: %v after %s", err, took)
		}
		stop()
		wakes.Wait()
	})
}

// TestMemory: chats of several sizes are admitted by the sum of their memory_max, for operators
// too; one that is larger than the bound is refused, and no other sleeps for it.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStarter(Options{MaxMemory: 4 * each})
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		must.Do(t, h.wake(ctx, "a", Place{"ada", 3 * each}))
		must.Do(t, h.wake(ctx, "b", Place{"ada", each}))
		err := h.wake(ctx, "c", Place{"ada", 5 * each})
		const large = "1280 MiB, is more than max_awake_memory, 1024 MiB"
		refused := errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), large)
		expect.True(t, refused && len(h.awake) == 2, "one that is too large: %v; awake are %v", err, h.awake)
		h.working = true
		err = h.wake(ctx, "d", Place{"ada", each})
		const full = "2 chats are awake, of all owners, with 1024 MiB of memory_max, and 256 MiB " +
			"more exceeds max_awake_memory"
		expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), full),
			"a full host: %v", err)
		h.working = false
		time.Sleep(minIdle)
		must.Do(t, h.wake(ctx, "d", Place{"ada", 2 * each}))
		if _, there := h.awake["a"]; there || len(h.awake) != 2 {
			t.Errorf("awake are %v", h.awake)
		}
		const half = "max_awake_memory: awake chats have 768 MiB of memory_max, of at most 1024 MiB"
		if all := h.overall(3); !slices.Contains(all, half) {
			t.Errorf("findings: %q", all)
		}
	})
}

// TestTooLargeForTheIdle: a wake for which all idle chats together make no room is refused
// immediately, and none of them sleeps; one that they make room for gets it.
func TestTooLargeForTheIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStarter(Options{MaxMemory: 4 * each})
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		must.Do(t, h.wake(ctx, "works", Place{"ada", 2 * each}))
		must.Do(t, h.wake(ctx, "idle1", Place{"ada", each}))
		must.Do(t, h.wake(ctx, "idle2", Place{"ada", each}))
		h.works["works"] = true
		time.Sleep(minIdle)
		began := time.Now()
		err := h.wake(ctx, "large", Place{"bob", 3 * each})
		expect.True(t, errors.Is(err, chat.ErrBusy) && len(h.slept) == 0 && time.Since(began) <= 0,
			"%v after %s, asleep are %q", err, time.Since(began), h.slept)
		must.Do(t, h.wake(ctx, "fits", Place{"bob", 2 * each}))
		expect.True(t, len(h.slept) == 2 && h.memory <= 4*each, "asleep are %q", h.slept)
	})
}

// TestSmallOvertake: while a large wake waits, smaller ones that fit wake, up to as much memory as
// that waits for, also when many come simultaneously. The next ones wait behind it, and it wakes.
func TestSmallOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStarter(Options{MaxMemory: 8 * each})
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		must.Do(t, h.wake(ctx, "used", Place{"ada", 5 * each}))
		var wakes sync.WaitGroup
		wakes.Go(func() { must.Do(t, h.wake(ctx, "large", Place{"bob", 4 * each})) })
		synctest.Wait()
		h.wakeAll(t, &wakes, "equal", 1, 4*each)
		for i := range 6 {
			id := chat.ID(fmt.Sprint("small", i))
			wakes.Go(func() { must.Do(t, h.wake(ctx, id, Place{"cyd", each})) })
		}
		time.Sleep(minIdle / 2)
		last := string(h.started[len(h.started)-1])
		expect.True(t, len(h.started) == 4 && h.started[0] == "used" && strings.HasPrefix(last, "small"),
			"before the large one started %q", h.started)
		wakes.Wait()
		at := slices.Index(h.started, "large")
		expect.True(t, at == 4 && len(h.started) == 9 && h.memory <= 8*each, "started %q", h.started)
	})
}

// TestOvertakingIsBounded: however many small ones come, the first in the line is overtaken by as
// much as it wants.
func TestOvertakingIsBounded(t *testing.T) {
	r := &room{}
	if waits, overtakes := r.before(each, true); waits || overtakes {
		t.Errorf("without a line: %t, %t", waits, overtakes)
	}
	r.join()
	r.lead(3 * each)
	for i, want := range []bool{true, true, true, false, false} {
		if waits, overtakes := r.before(each, true); overtakes != want || waits == want {
			t.Errorf("the small one %d waits: %t, overtakes: %t", i, waits, overtakes)
		}
	}
	r.overtookNobody(each)
	if _, overtakes := r.before(each, true); !overtakes {
		t.Error("what was given back is not there")
	}
	r.lead(2 * each)
	if _, overtakes := r.before(2*each, true); overtakes {
		t.Error("one as large as the first overtakes it")
	}
	if _, overtakes := r.before(each, false); overtakes {
		t.Error("one overtakes where memory has no bound")
	}
}

// TestGrow: an awake chat gets more memory if others make room, and counts with it before its
// record says so; it is refused, and none sleeps, where they cannot.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStarter(Options{MaxMemory: 4 * each})
		ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
		must.Do(t, h.wake(ctx, "grows", Place{"ada", each}))
		must.Do(t, h.wake(ctx, "idle", Place{"bob", each}))
		must.Do(t, h.wake(ctx, "works", Place{"bob", each}))
		h.works["grows"], h.works["works"] = true, true
		time.Sleep(minIdle)
		if _, err := h.Grow(ctx, "grows", Place{"ada", 4 * each}); !errors.Is(err, chat.ErrBusy) ||
			len(h.slept) > 0 {
			t.Errorf("too much: %v, asleep are %q", err, h.slept)
		}
		done, err := h.Grow(ctx, "grows", Place{"ada", 2 * each})
		must.True(t, err == nil && len(h.slept) == 0, "what fits: %v, asleep are %q", err, h.slept)
		h.works["idle"] = true
		expect.Is(t, h.wake(ctx, "other", Place{"bob", each}), chat.ErrBusy, "beside it")
		h.works["idle"] = false
		done()
		if err := h.wake(ctx, "other", Place{"bob", each}); err != nil || len(h.slept) > 0 {
			t.Errorf("once it did not grow: %v, asleep are %q", err, h.slept)
		}
		time.Sleep(minIdle)
		done, err = h.Grow(ctx, "grows", Place{"ada", 3 * each})
		must.True(t, err == nil && slices.Equal(h.slept, []chat.ID{"idle", "other"}),
			"with room made: %v, asleep are %q", err, h.slept)
		done()
	})
}
