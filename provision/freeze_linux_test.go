package provision

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// coldGroups are those of one chat, whose session may be frozen and which an operator may hold.
type coldGroups struct {
	groups
	mu             sync.Mutex
	cold, held     bool
	freezes, thaws int
}

func (g *coldGroups) set(what *bool, to bool, count *int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *what != to {
		*count++
	}
	*what = to
	return nil
}

func (g *coldGroups) Freeze(chat.ID) error { return g.set(&g.cold, true, &g.freezes) }

func (g *coldGroups) Thaw(chat.ID) error {
	time.Sleep(time.Millisecond) // so that callers meet
	return g.set(&g.cold, false, &g.thaws)
}

func (g *coldGroups) Frozen(chat.ID) (chat.Frozen, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.held:
		return chat.FrozenUntilThawed, nil
	case g.cold:
		return chat.FrozenUntilUsed, nil
	}
	return "", nil
}

// Processes are more than a session has of its own.
func (g *coldGroups) Processes(chat.ID) (map[int]string, error) {
	all := map[int]string{}
	for pid := range 16 {
		all[-1-pid] = ""
	}
	return all, nil
}

func cold(t *testing.T) (*Manager, subject, *liveSession, *coldGroups) {
	t.Helper()
	m, rec, s := oneAwake(t)
	g := &coldGroups{}
	m.groups.groups = g
	return m, rec, s, g
}

func still() bool { return true }

// TestFreezeMeetsCommands: whenever chatd freezes a session, no command of chatd's stays inside a
// frozen one: it finds the session thawed, or the session is not frozen.
func TestFreezeMeetsCommands(t *testing.T) {
	m, rec, s, g := cold(t)
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := m.freeze(t.Context(), rec, s, "a test", still); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				leave, err := m.letIn(t.Context(), rec, s)
				if err != nil {
					t.Error(err)
					return
				}
				s.freezing.Lock() // not while freeze makes up its mind
				is, _ := g.Frozen(rec.ID)
				expect.True(t, is == "", "a command is inside a frozen session")
				s.freezing.Unlock()
				leave()
				time.Sleep(200 * time.Microsecond)
			}
		})
	}
	all.Wait()
	close(stop)
	<-over
	expect.True(t, g.thaws != 0, "nothing was thawed: the test meets nothing")
}

// TestThawOnce: fifty simultaneous uses thaw a session once, and the audit log says so once.
func TestThawOnce(t *testing.T) {
	m, rec, s, g := cold(t)
	froze, err := m.freeze(t.Context(), rec, s, "a test", still)
	if !froze || err != nil {
		t.Fatal(froze, err)
	}
	ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, used, err := m.use(ctx, rec, m.starts.New()); err != nil || used != s {
				t.Error(err)
			}
			leave, err := m.letIn(ctx, rec, s)
			if err != nil {
				t.Error(err)
				return
			}
			leave()
		})
	}
	all.Wait()
	text := must.Get(os.ReadFile(filepath.Join(m.opt.State, "audit.jsonl")))(t)
	n := strings.Count(string(text), `"action":"thaw"`)
	expect.True(t, g.thaws == 1 && n == 1, "%d thaws, %d in the audit log", g.thaws, n)
}

// TestFreezeIdleMeetsUse: a chat that was used since it was found idle, in which a command is, on
// which another caller acts, or whose freeze cannot be audited is not frozen.
func TestFreezeIdleMeetsUse(t *testing.T) {
	m, rec, s, g := cold(t)
	found := idle.Chat{ID: rec.ID, Used: rec.UsedAt}
	runs := func(what string, prepare func() (undo func())) {
		t.Helper()
		undo := prepare()
		froze, err := m.freezeIdle(found, "a test")
		expect.True(t, !froze && err == nil && !g.cold,
			"%s: froze %t, %v, is frozen %t", what, froze, err, g.cold)
		undo()
	}
	runs("another caller acts on it", func() func() {
		unlock := must.Get(m.chats.locks.Lock(t.Context(), rec.ID))(t)
		return unlock
	})
	runs("a command is inside", func() func() {
		leave := must.Get(m.letIn(t.Context(), rec, s))(t)
		return leave
	})
	runs("it ends", func() func() {
		s.ending.Store(true)
		return func() { s.ending.Store(false) }
	})
	m.store.Touch(rec.ID, rec.UsedAt.Add(time.Second))
	runs("it was used", func() func() { return func() {} })
	found.Used = rec.UsedAt.Add(time.Second)
	froze, err := m.freezeIdle(found, "a test")
	expect.True(t, froze && err == nil && g.cold, "idle: froze %t, %v", froze, err)
}

// TestHeldIsRefused: nothing enters a chat that an operator holds, and nothing thaws it.
func TestHeldIsRefused(t *testing.T) {
	m, rec, s, g := cold(t)
	g.held, g.cold = true, true
	_, err := m.letIn(t.Context(), rec, s)
	expect.True(t, errors.Is(err, chat.ErrBusy), "a command: %v", err)
	if g.thaws > 0 || s.inside.Load() != 0 {
		t.Errorf("%d thaws, %d inside", g.thaws, s.inside.Load())
	}
}

// TestFrozenDoesNoWork: programs in a frozen chat keep it from no sleep; they do in any other.
func TestFrozenDoesNoWork(t *testing.T) {
	m, rec, _, g := cold(t)
	does := m.work(rec.ID)
	expect.True(t, does != "", "processes are no work")
	must.Do(t, g.Freeze(rec.ID))
	expect.Equal(t, m.work(rec.ID), "", "a frozen chat does")
}
