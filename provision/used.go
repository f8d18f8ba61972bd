package provision

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/state"
)

// touch records that the chat is used now.
func (m *Manager) touch(rec state.Record) { m.store.Touch(rec.ID, time.Now()) }

// usedAt is when the chat was last used, which is now while it is at work. Reap by
// idleness goes by it.
func (m *Manager) usedAt(rec state.Record) time.Time {
	if m.atWork(rec.ID) {
		return time.Now().UTC()
	}
	return m.lastUsed(rec)
}

// lastUsed is usedAt of a chat that is not at work.
func (m *Manager) lastUsed(rec state.Record) time.Time {
	m.keepTime()
	if now, err := m.store.Get(rec.ID); err == nil {
		return now.UsedAt // rec may be from before the clock was set
	}
	return rec.UsedAt
}

// atWork reports whether the chat is in use: a run of any kind is under way, a client is
// attached to its terminal, a file tool works, or a caller waits for what it typed.
func (m *Manager) atWork(id chat.ID) bool {
	return m.runs.AnyUnderWay(id) || m.calls.UnderWay(id) || m.logs.InUse(id)
}

// work says what an awake chat does, also in programs that it started itself; empty is nothing.
func (m *Manager) work(id chat.ID) string {
	if m.atWork(id) {
		return "a run, a file tool, a client or a caller"
	}
	if m.archive.keeps(id) {
		return "an archive"
	}
	return m.ownPrograms(id)
}

// workWords says all that a chat does now, for whoever would end it.
func (m *Manager) workWords(id chat.ID) (words []string) {
	for _, w := range []struct {
		now  bool
		what string
	}{
		{m.runs.AnyUnderWay(id), "a run"}, {m.calls.UnderWay(id), "a file tool"},
		{m.logs.InUse(id), "a client of its terminal"},
	} {
		if w.now {
			words = append(words, w.what)
		}
	}
	if what := m.ownPrograms(id); what != "" {
		words = append(words, what)
	}
	return words
}

// ownPrograms says which programs an awake chat has started itself; empty is none.
func (m *Manager) ownPrograms(id chat.ID) string {
	s := m.session(id)
	if s == nil {
		return ""
	}
	if m.frozen(id) != "" {
		return "" // whatever its programs are
	}
	pids, err := m.groups.Processes(id)
	if err != nil { // it has just ended
		return ""
	}
	if n := len(pids); n > sessionProcesses {
		return fmt.Sprintf("%d processes", n)
	}
	for pid := range pids {
		p, err := sys.ReadProcess(pid)
		if err == nil && p.UID == s.UID && p.State != 'Z' && !slices.Contains(sessionNames, p.Name) {
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

// cpuTime is the CPU time of a chat's session so far.
func (m *Manager) cpuTime(id chat.ID) (time.Duration, error) {
	u, err := m.groups.Usage(id)
	return u.CPU.D(), err
}

// awakeChats are the awake chats, as package idle knows them.
func (m *Manager) awakeChats() []idle.Chat {
	m.keepTime()
	all := m.allSessions()
	out := make([]idle.Chat, 0, len(all))
	for _, s := range all {
		rec, err := m.store.Get(s.Chat)
		if err != nil || rec.Phase != chat.Ready {
			continue // it is being reaped
		}
		p := m.profile(rec)
		out = append(out, idle.Chat{
			ID: rec.ID, Owner: rec.Owner, SleepAfter: p.SleepAfter.D(), KeepAwake: p.KeepAwake,
			Used: rec.UsedAt, FreezeAfter: p.FreezeAfter.D(), Frozen: m.frozen(rec.ID),
		})
	}
	return out
}

// shortestIdle is the shortest sleep_after or freeze_after of all profiles; zero if none has one.
func (m *Manager) shortestIdle() (shortest time.Duration) {
	for _, p := range m.opt.Profiles {
		for _, d := range []time.Duration{p.SleepAfter.D(), p.FreezeAfter.D()} {
			if d > 0 && (shortest == 0 || d < shortest) {
				shortest = d
			}
		}
	}
	return shortest
}

// sleepIdle puts a chat to sleep for a reason of chatd's own, unless another caller acts on it, it
// was used since, or still is false.
//
// A call that uses the chat first says so, and then looks whether its session ends; this looks for
// such calls after it has said that the session ends. So one of the two sees the other: the call waits
// for the chat's lock and wakes it again, or the session stays.
func (m *Manager) sleepIdle(c idle.Chat, why string, still func() bool) (bool, error) {
	unlock, free := m.locks.tryLock(c.ID)
	if !free {
		return false, nil
	}
	defer unlock()
	s := m.session(c.ID)
	if s == nil || !s.ending.CompareAndSwap(false, true) {
		return false, nil
	}
	rec, err := m.store.Get(c.ID)
	if err != nil || rec.Phase != chat.Ready || rec.UsedAt.After(c.Used) || !still() {
		s.ending.Store(false)
		return false, nil
	}
	m.log.Info("putting a chat to sleep", "chat", c.ID, "why", why)
	err = m.sleepLocked(context.Background(), rec, why) // whoever needs the place is not who did it
	s.ending.Store(m.session(c.ID) == nil || s.endedFor.Load() != nil)
	return true, err
}
