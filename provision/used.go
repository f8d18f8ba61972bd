package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/sockets"
)

// usedAt is when the chat was last used, which is now while it is at work. Reap by
// idleness goes by it.
func (m *Manager) usedAt(rec subject) time.Time {
	if m.atWork(rec.ID) {
		return time.Now().UTC()
	}
	return m.lastUsed(rec)
}

// lastUsed is usedAt of a chat that is not at work.
func (m *Manager) lastUsed(rec subject) time.Time {
	m.clock.Keep()
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
	if m.archive.Keeps(id) {
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
	s := m.chats.session(id)
	if s == nil {
		return ""
	}
	if m.groups.frozen(id) != "" {
		return "" // whatever its programs are
	}
	pids, err := m.groups.Processes(id)
	if err != nil { // it has just ended
		return ""
	}
	return idle.OwnPrograms(pids, s.UID)
}

// awakeChats are the awake chats, as package idle knows them.
func (m *Manager) awakeChats() (out []idle.Chat) {
	m.clock.Keep()
	for _, rec := range m.chats.sessionsOfChats() {
		if p := rec.profile; rec.Phase == chat.Ready {
			out = append(out, idle.Chat{
				ID: rec.ID, Owner: rec.Owner, SleepAfter: p.SleepAfter.D(), KeepAwake: p.KeepAwake,
				Used: rec.UsedAt, FreezeAfter: p.FreezeAfter.D(), Frozen: m.groups.frozen(rec.ID),
			})
		}
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

// usedSince reports whether a chat was used, or is gone, since it was found idle.
func (k *chats) usedSince(c idle.Chat) bool {
	now, err := k.get(c.ID)
	return err != nil || now.UsedAt.After(c.Used)
}

// sleepIdle puts a chat to sleep for a reason of chatd's own, unless another caller acts on it, it
// was used since, or still is false.
//
// A call that uses the chat first says so, and then looks whether its session ends; this looks for
// such calls after it has said that the session ends. So one of the two sees the other: the call waits
// for the chat's lock and wakes it again, or the session stays.
func (m *Manager) sleepIdle(c idle.Chat, why string, still func() bool) (bool, error) {
	rec, unlock, got := m.chats.tryReady(c.ID)
	if !got {
		return false, nil
	}
	defer unlock()
	s := m.chats.session(c.ID)
	if s == nil || !s.ending.CompareAndSwap(false, true) {
		return false, nil
	}
	if m.chats.usedSince(c) || !still() {
		s.ending.Store(false)
		return false, nil
	}
	m.log.Info("putting a chat to sleep", "chat", c.ID, "why", why)
	err := m.sleep(context.Background(), rec, why) // whoever needs the place is not who did it
	s.ending.Store(m.chats.session(c.ID) == nil || s.endedFor.Load() != nil)
	return true, err
}

// sleepFull puts a chat to sleep that is far over its limit, which nothing enforces. Its next wake
// is to clean up; see [disk.processLimits].
func (m *Manager) sleepFull(c diskquota.Chat, why string) {
	ctx, cancel := context.WithTimeout(m.bg, session.StartTimeout)
	defer cancel()
	rec, unlock, err := m.chats.lockChat(ctx, c.ID)
	if err != nil {
		m.log.Warn("a chat far over its disk_max stays awake", "chat", c.ID, "error", err)
		return
	}
	defer unlock()
	if rec.Phase != chat.Ready || m.chats.session(c.ID) == nil {
		return
	}
	m.log.Warn("putting a chat to sleep", "chat", c.ID, "why", why)
	m.trail.Report("chat "+string(c.ID), m.sleep(ctx, rec, why))
}

// watchSockets ends sessions whose sockets and record locks hold too much, until ctx ends.
func (ss *sessions) watchSockets(ctx context.Context) {
	awake := func() (all []sockets.Session) {
		for s, c := range ss.chats.sessionsOfChats() {
			all = append(all, sockets.Session{
				Chat: s.Chat, UID: s.UID, Init: s.Init, MemoryMax: c.profile.Limits.MemoryMax,
			})
		}
		return all
	}
	ss.trail.Report("what sockets hold", sockets.Watch(ctx, sockets.Options{
		Awake: awake, Members: ss.groups.Members, Log: ss.log,
		End: func(s sockets.Session, why string) { ss.endFor(ctx, s, why) },
	}))
}

// endFor ends a session for a reason, which the audit of its end names. The caller does not
// wait for the end.
func (ss *sessions) endFor(ctx context.Context, of sockets.Session, why string) {
	s := ss.chats.session(of.Chat)
	if s == nil || s.Init != of.Init || !s.endedFor.CompareAndSwap(nil, &why) {
		return
	}
	s.ending.Store(true)
	ss.log.Warn("ending a session", "chat", s.Chat, "why", why)
	ss.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), session.StartTimeout)
		defer cancel()
		rec, err := ss.chats.get(s.Chat)
		if err == nil {
			err = ss.starter.Kill(ctx, rec.ID, rec.UID)
		}
		if err != nil && !errors.Is(err, chat.ErrNotFound) { // reaped meanwhile
			ss.trail.Report("session "+string(s.Chat), err)
		}
	})
}
