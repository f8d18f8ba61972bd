package provision

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// enter runs a command inside the session as the chat; see [session.Starter.Enter].
func (m *Manager) enter(ctx context.Context, rec state.Record, s *liveSession, e session.Entry) (session.CommandResult, error) {
	leave, err := m.letIn(ctx, rec, s)
	if err != nil {
		return session.CommandResult{}, err
	}
	defer leave()
	return m.starter.Enter(ctx, s.Session, m.behindWalls(rec, s, e))
}

// behindWalls is e with what a command in the session sees, and its limits.
func (m *Manager) behindWalls(rec state.Record, s *liveSession, e session.Entry) session.Entry {
	e.View, e.Limits = m.sessionView(rec, s), m.processLimits(rec)
	return e
}

// terminal is the chat's tmux, each client of which enters the session anew.
func (m *Manager) terminal(rec state.Record, s *liveSession) *tmux.Terminal {
	return tmux.New(plan.Socket, func(ctx context.Context, stdin []byte, argv []string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		out, err := m.enter(ctx, rec, s, session.Entry{Run: session.NewRun("tty"), Argv: argv, Dir: m.home(rec.ID), Stdin: stdin})
		switch {
		case err != nil && s.endsSoon(): // its cgroup was removed, or its process cannot be joined
			m.log.Debug("a terminal's client met the end of its session", "chat", rec.ID, "err", err)
			return nil, fmt.Errorf("cannot use the terminal of chat %s: its session ended meanwhile: %w", rec.ID, chat.ErrWrongPhase)
		case err != nil:
			return nil, err
		case out.TimedOut:
			return nil, fmt.Errorf("cannot talk to tmux of chat %s within %s: %w", rec.ID, clientTimeout, chat.ErrBusy)
		case out.Exit != 0 || out.Signal != "":
			return nil, fmt.Errorf("cannot use the terminal of chat %s: tmux says %s%s: %w", rec.ID, chat.QuoteOutput(out.Stderr), m.outOfMemory(rec, out.Usage.OOMKills), chat.ErrWrongPhase)
		}
		return out.Stdout, nil
	})
}

// clientTimeout bounds a tmux client: the server belongs to the chat and may not answer.
const clientTimeout = 20 * time.Second

// endsSoon reports whether chatd is ending the session, or it ends within a second: the kernel ends
// the other processes of a pid namespace before its first.
func (s *liveSession) endsSoon() bool {
	if s.ending.Load() {
		return true
	}
	select {
	case <-s.Init.Ended():
	case <-time.After(time.Second):
	}
	return !s.Init.Alive()
}
