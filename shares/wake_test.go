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
	"github.com/chatd/chatd/quota"
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
}

const (
	startTakes = 60 * time.Millisecond
	minIdle    = 10 * time.Second
)

func newStarter(opt Options) *starter {
	h := &starter{
		awake: map[chat.ID]Place{}, since: map[chat.ID]time.Time{},
		starts: quota.NewLimiter(2, 3*time.Second),
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

func (h *starter) makeRoom(_ context.Context, owner string) (made, soon bool, awake string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working {
		return false, false, "all at work"
	}
	oldest := chat.ID("")
	for id, p := range h.awake {
		older := oldest == "" || h.since[id].Before(h.since[oldest])
		if older && (owner == "" || p.Owner == owner) {
			oldest = id
		}
	}
	if oldest == "" || time.Since(h.since[oldest]) < minIdle {
		return false, true, "all just used"
	}
	delete(h.awake, oldest)
	return true, false, ""
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
				if len(h.started) != 1000 || h.most > 100 || h.memory > 100*each {
					t.Errorf("%d chats woke, at most %d were awake with %s",
						len(h.started), h.most, size(h.memory))
				}
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
		must(t, h.wake(ctx, "first", Place{"ada", each}))
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
			if err := h.wake(leaver, "leaver", Place{"bob", each}); !errors.Is(err, chat.ErrBusy) {
				t.Errorf("one that left: %v", err)
			}
		})
		synctest.Wait()
		wakes.Go(func() { must(t, h.wake(ctx, "third", Place{"cyd", each})) })
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
		must(t, h.wake(ctx, "a", Place{"ada", 3 * each}))
		must(t, h.wake(ctx, "b", Place{"ada", each}))
		err := h.wake(ctx, "c", Place{"ada", 5 * each})
		const large = "1280 MiB, is more than max_awake_memory, 1024 MiB"
		refused := errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), large)
		if !refused || len(h.awake) != 2 {
			t.Errorf("one that is too large: %v; awake are %v", err, h.awake)
		}
		h.working = true
		err = h.wake(ctx, "d", Place{"ada", each})
		const full = "2 chats are awake, of all owners, with 1024 MiB of memory_max, and 256 MiB " +
			"more exceeds max_awake_memory"
		if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), full) {
			t.Errorf("a full host: %v", err)
		}
		h.working = false
		time.Sleep(minIdle)
		must(t, h.wake(ctx, "d", Place{"ada", 2 * each}))
		if _, there := h.awake["a"]; there || len(h.awake) != 2 {
			t.Errorf("awake are %v", h.awake)
		}
		const half = "max_awake_memory: awake chats have 768 MiB of memory_max, of at most 1024 MiB"
		if all := h.overall(3); !slices.Contains(all, half) {
			t.Errorf("findings: %q", all)
		}
	})
}
