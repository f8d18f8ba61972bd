package provision

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/admission"
)

// Wake starts the chat's session, unless it has one, and returns when its shell is at its
// prompt.
func (m *Manager) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) {
	c, unlock, err := m.chats.lockReached(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	st := m.starts.New()
	defer st.End()
	_, err = m.wakeToUse(ctx, c, st, "a caller asked for it")
	return m.shown(ctx, c, err)
}

// wakeToUse is wakeLocked for a use of the chat, which thaws it.
func (l *life) wakeToUse(
	ctx context.Context, c subject, st *admission.Start, why string,
) (*liveSession, error) {
	s, err := l.wakeLocked(ctx, c, st)
	if err != nil {
		return nil, err
	}
	l.chats.touch(c.ID) // the wake may have taken long
	return s, l.thaw(ctx, c, s, why)
}

// wakeLocked wakes a ready chat; the caller holds its lock.
func (l *life) wakeLocked(ctx context.Context, c subject, st *admission.Start) (*liveSession, error) {
	if c.Phase != chat.Ready {
		return nil, notReady(c, "wake")
	}
	if s := l.chats.session(c.ID); s != nil && s.Init.Alive() {
		return s, nil
	}
	if err := l.chats.configured(c, "wake"); err != nil {
		return nil, err
	}
	if err := st.MayBegin(ctx); err != nil {
		return nil, err
	}
	done, err := l.shares.Wake(ctx, c.ID, c.place())
	if err != nil {
		return nil, err
	}
	defer done()
	if err := st.Enter(ctx, c.ID, c.Owner, "wake"); err != nil {
		return nil, err
	}
	return l.startLocked(ctx, c)
}

// startLocked starts the session of a chat that sleeps.
func (l *life) startLocked(ctx context.Context, c subject) (*liveSession, error) {
	// First remove the remains of an ended session: nothing is ever started in a cgroup that
	// was killed.
	if err := l.awakeSteps().backwards(ctx, l.log, "clear", c); err != nil {
		return nil, err
	}
	if err := l.trail.Write(ctx, c.Record, "wake", "intent", nil); err != nil {
		return nil, err
	}
	l.freshPrograms()
	err := l.awakeSteps().forwards(ctx, l.log, "wake", c)
	s := l.chats.session(c.ID)
	l.disk.sayCleanUp(c)
	if err := l.trail.Outcome(ctx, c.Record, "wake", seen(s), err); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("cannot wake chat %s: its session ended immediately: %w", c.ID,
			chat.ErrWrongPhase)
	}
	return s, nil
}

// Sleep ends the chat's session and everything in it; home and account stay.
func (m *Manager) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	c, unlock, err := m.chats.lockReady(ctx, id, "put to sleep")
	if err != nil {
		return chat.Chat{}, err
	}
	defer unlock()
	if m.chats.session(id) != nil || m.hasTraces(id) {
		err = m.sleep(ctx, c, "")
	}
	return m.shown(ctx, c, err)
}

// sleep puts an awake chat to sleep; the caller holds its lock. why is empty for a request.
func (ss *sessions) sleep(ctx context.Context, rec subject, why string) error {
	words, detail := "the chat was put to sleep", map[string]string(nil)
	if why != "" {
		words, detail = words+": "+why, map[string]string{"why": why}
	}
	return ss.trail.Around(ctx, rec.Record, "sleep", detail, func() error {
		ss.runs.SetEndReason(rec.ID, chat.EndedBySleep)
		ss.keepTerminal(ctx, rec.ID)
		ss.logs.Say(rec.ID, words)
		return ss.awakeSteps().backwards(context.WithoutCancel(ctx), ss.log, "sleep", rec)
	})
}

// keepTimeout bounds how long a sleep waits for the chat to write down what its terminal shows.
const keepTimeout = time.Second

// keepTerminal lets the session write down where its shell is and what its terminal shows, for the
// next one. What it does not write within keepTimeout is lost.
func (ss *sessions) keepTerminal(ctx context.Context, id chat.ID) {
	s := ss.chats.session(id)
	if s == nil || !s.Init.Alive() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if err := s.terminal.Keep(ctx, plan.KeptTerminal); err != nil {
		ss.log.Debug("a terminal is not kept over a sleep", "chat", id, "why", err)
	}
}

// freshPrograms updates the PATH of every profile for a wake or a run, if the host's programs
// changed. It sees a program that was installed after chatd's start. On failure the old PATH stays.
func (l *life) freshPrograms() {
	l.trail.Report("the commands in PATH", l.programs.Link(l.opt.Profiles))
}

// watch waits for the session's end and cleans up after it: when the shell
// ends, the chat is asleep.
func (ss *sessions) watch(s *liveSession) {
	err := s.Init.Wait()
	s.stopLog()
	if err != nil {
		return // closed: another goroutine ends the session or leaves it running
	}
	ctx := context.Background()
	rec, unlock, err := ss.chats.lockChat(ctx, s.Chat)
	if err != nil {
		return
	}
	defer unlock()
	if ss.chats.session(s.Chat) != s {
		return
	}
	why := "the session ended by itself"
	if ended := s.endedFor.Load(); ended != nil {
		why = *ended
	}
	ss.logs.Say(s.Chat, why)
	why = strings.Join(append(ss.metLimits(rec, s), why), "; ")
	ss.log.Info("a session ended", "chat", s.Chat, "why", why)
	ss.trail.Note(ctx, rec.Record, "sleep", map[string]string{"why": why}, nil)
	ss.trail.Report("session "+string(s.Chat), ss.awakeSteps().backwards(ctx, ss.log, "sleep", rec))
}
