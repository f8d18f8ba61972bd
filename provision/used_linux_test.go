package provision

import (
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// oneAwake is a manager with one awake chat, whose session is a process that sleeps.
func oneAwake(t *testing.T) (*Manager, subject, *liveSession) {
	t.Helper()
	profiles := map[string]chat.Profile{chat.DefaultProfile: {Name: chat.DefaultProfile}}
	dir := t.TempDir()
	uids := state.Range{Low: 1 << 20, High: 1<<20 + 255}
	store, err := state.Open(state.Options{Dir: dir, UIDs: uids, BlockSize: 64})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, store.Close()) })
	m := newManager(Options{
		Profiles: profiles, State: dir, Run: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	}, store)
	_, _, err = store.EnsureBlock(chat.DefaultProfile)
	must.Do(t, err)
	e := state.Event{Action: "create", Outcome: "intent"}
	rec, _, err := store.Admit(chat.Spec{ExternalID: "a", Owner: "ada", Profile: chat.DefaultProfile}, e,
		func(state.OwnerUse) error { return nil })
	must.Do(t, err)
	must.Do(t, store.SetPhase(rec.ID, chat.Ready, e))
	cmd := exec.Command("sleep", "1000")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	init := must.Get(sys.OpenProcess(sys.Process{PID: cmd.Process.Pid}))(t)
	t.Cleanup(func() { _ = init.Close() })
	s := &liveSession{Session: &session.Session{Chat: rec.ID, UID: rec.UID, Init: init}}
	m.groups.groups = &coldGroups{}
	m.chats.awake.Store(rec.ID, s)
	return m, m.chats.subject(rec), s
}

// TestSleepIdleMeetsUse: a chat that was used, or that works, since it was found idle stays awake, and
// so does one on which another caller acts.
func TestSleepIdleMeetsUse(t *testing.T) {
	m, rec, s := oneAwake(t)
	yes, no := func() bool { return true }, func() bool { return false }
	stays := func(what string, c idle.Chat, still func() bool) {
		t.Helper()
		if slept, err := m.sleepIdle(c, "idle", still); slept || err != nil || !s.lives() {
			t.Errorf("%s: slept %t, %v, lives %t", what, slept, err, s.lives())
		}
	}
	stays("used since", idle.Chat{ID: rec.ID, Used: rec.UsedAt.Add(-time.Second)}, yes)
	stays("at work", idle.Chat{ID: rec.ID, Used: rec.UsedAt}, no)
	unlock := must.Get(m.chats.locks.Lock(t.Context(), rec.ID))(t)
	stays("another caller acts", idle.Chat{ID: rec.ID, Used: rec.UsedAt}, yes)
	unlock()
	s.ending.Store(true)
	slept, err := m.sleepIdle(idle.Chat{ID: rec.ID, Used: rec.UsedAt}, "", yes)
	expect.True(t, !slept && err == nil, "one that ends already: slept %t, %v", slept, err)
}

// TestReapUnusedMeetsUse: a chat that was used since it was found unused is neither put to sleep nor
// reaped, nor is one whose session another caller ends.
func TestReapUnusedMeetsUse(t *testing.T) {
	m, rec, s := oneAwake(t)
	stays := func(what string, rec subject) {
		t.Helper()
		err := m.reapOne(t.Context(), rec, time.Nanosecond)
		if now, gerr := m.chats.get(rec.ID); err != nil || gerr != nil || now.Phase != chat.Ready {
			t.Errorf("%s: %v, it is %s, %v", what, err, now.Phase, gerr)
		}
	}
	before := rec
	before.UsedAt = rec.UsedAt.Add(-time.Second)
	stays("used since", before)
	s.ending.Store(true)
	stays("it ends already", rec)
}

// TestUseMeetsSleep: a call that uses a chat says so first, and does not get a session that chatd is
// ending: it waits until that has ended, or stays.
func TestUseMeetsSleep(t *testing.T) {
	m, rec, s := oneAwake(t)
	ctx := chat.WithCaller(t.Context(), chat.Caller{Name: "ada", Role: chat.RoleBridge})
	unlock := must.Get(m.chats.locks.Lock(ctx, rec.ID))(t)
	s.ending.Store(true)
	got := make(chan *liveSession, 1)
	go func() {
		_, s, err := m.use(ctx, rec, m.starts.New())
		expect.NoError(t, err)
		got <- s
	}()
	for used := rec.UsedAt; !used.After(rec.UsedAt); time.Sleep(time.Millisecond) {
		now := must.Get(m.chats.get(rec.ID))(t)
		used = now.UsedAt
	}
	select {
	case <-got:
		t.Fatal("the call has a session that is ending")
	case <-time.After(50 * time.Millisecond):
	}
	s.ending.Store(false) // it stays
	unlock()
	expect.True(t, <-got == s, "the call has another session")
}

// TestUnusedAtStart: a chat that looks unused for too long from the first look on, as after a boot
// with a clock far ahead, is left alone for an hour, in which the clock can be set right: then it
// was not unused.
func TestUnusedAtStart(t *testing.T) {
	m, rec, _ := oneAwake(t)
	m.chats.awake.Delete(rec.ID)
	m.opt.Profiles[chat.DefaultProfile] = chat.Profile{
		Name: chat.DefaultProfile, ReapAfter: chat.Duration(30 * 24 * time.Hour)}
	unused := func(used time.Time) time.Time { return used.Add(-365 * 24 * time.Hour) }
	m.store.MoveUsed(unused)
	tried := func() bool { // there is no directory of archives, which it says
		return strings.Contains(strings.Join(m.trail.Findings(), "\n"), "reap_after of chat "+string(rec.ID))
	}
	since := idle.Lasting[chat.ID]{}
	after := func(first time.Duration) { // it was found first so long ago
		since[rec.ID] = idle.Sighting{First: since[rec.ID].First.Add(-first), Last: since[rec.ID].Last}
	}
	m.reapUnused(t.Context(), since)
	after(59 * time.Minute)
	if m.reapUnused(t.Context(), since); tried() {
		t.Error("it is reaped within the hour")
	}
	m.store.MoveUsed(func(time.Time) time.Time { return time.Now() })
	if m.reapUnused(t.Context(), since); len(since) > 0 {
		t.Error("it stays unused after the clock was set right")
	}
	m.store.MoveUsed(unused)
	m.reapUnused(t.Context(), since)
	after(61 * time.Minute)
	if m.reapUnused(t.Context(), since); !tried() {
		t.Error("it is not reaped after the hour")
	}
}

// TestClockSet: when the wall clock is set a year ahead, and then back, used_at moves with it
// before anything goes by it: a chat that was idle for an hour is not idle for a year, to no
// reader.
func TestClockSet(t *testing.T) {
	m, rec, _ := oneAwake(t)
	wall, boot := rec.UsedAt, time.Hour
	m.clock = m.newClock(func() (time.Time, time.Duration) { return wall, boot })
	wall, boot = wall.Add(time.Hour), boot+time.Hour
	for _, step := range []time.Duration{0, 365 * 24 * time.Hour, -365 * 24 * time.Hour} {
		wall = wall.Add(step)
		expect.Equal(t, wall.Sub(m.lastUsed(rec)), time.Hour,
			"after a step of %s a caller sees it idle for", step)
		wall = wall.Add(step)
		expect.Equal(t, wall.Sub(m.awakeChats()[0].Used), time.Hour,
			"after a step of %s a look sees it idle for", step)
	}
}
