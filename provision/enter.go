package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/tmux"
)

// enter runs a command inside the session as the chat; see [session.Starter.Enter].
func (ss *sessions) enter(
	ctx context.Context, rec subject, s *liveSession, e session.Entry,
) (session.CommandResult, error) {
	leave, err := ss.letIn(ctx, rec, s)
	if err != nil {
		return session.CommandResult{}, err
	}
	defer leave()
	return ss.starter.Enter(ctx, s.Session, ss.behindWalls(rec, s, e))
}

// behindWalls is e with what a command in the session sees, and its limits.
func (ss *sessions) behindWalls(rec subject, s *liveSession, e session.Entry) session.Entry {
	e.View, e.Limits = ss.mounts.of(rec, s), ss.disk.processLimits(rec)
	return e
}

// terminal is the chat's tmux, each client of which enters the session anew.
func (ss *sessions) terminal(rec subject, s *liveSession) *tmux.Terminal {
	return tmux.New(plan.Socket, func(ctx context.Context, stdin []byte, argv []string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, clientTimeout)
		defer cancel()
		c := ss.chats.subject(rec.Record) // as its profile is now
		out, err := ss.enter(ctx, c, s,
			session.Entry{Run: session.NewRun("tty"), Argv: argv, Dir: rec.home, Stdin: stdin})
		switch {
		case err != nil && s.endsSoon(): // its cgroup was removed, or its process cannot be joined
			ss.log.Debug("a terminal's client met the end of its session", "chat", rec.ID, "err", err)
			return nil, fmt.Errorf("cannot use the terminal of chat %s: its session ended meanwhile: %w",
				rec.ID, chat.ErrWrongPhase)
		case err != nil:
			return nil, err
		case out.TimedOut:
			return nil, fmt.Errorf("cannot talk to tmux of chat %s within %s: %w", rec.ID, clientTimeout,
				chat.ErrBusy)
		case out.Exit != 0 || out.Signal != "":
			return nil, fmt.Errorf("cannot use the terminal of chat %s: tmux says %s%s: %w", rec.ID,
				chat.QuoteOutput(out.Stderr), outOfMemory(c.profile.Limits, out.Usage.OOMKills),
				chat.ErrWrongPhase)
		}
		return out.Stdout, nil
	})
}

// clientTimeout bounds a tmux client: the server belongs to the chat and may not answer.
const clientTimeout = 20 * time.Second

// letIn counts a command that enters the session until leave, and thaws the session. It counts the
// command before it looks whether the session is frozen, and freeze freezes before it
// counts: so one of the two sees the other, and no command meets a session that chatd has frozen.
func (ss *sessions) letIn(ctx context.Context, rec subject, s *liveSession) (leave func(), err error) {
	s.inside.Add(1)
	leave = func() { s.inside.Add(-1) }
	if err := ss.thaw(ctx, rec, s, "a command enters it"); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// thaw lets a session go on that nobody used. Of simultaneous callers one does so, and the others
// wait for that. It is [chat.ErrBusy] for a chat that an operator holds.
func (ss *sessions) thaw(ctx context.Context, rec subject, s *liveSession, why string) error {
	if is, err := ss.groups.Frozen(rec.ID); err != nil || is == "" {
		return err
	}
	s.freezing.Lock()
	defer s.freezing.Unlock()
	switch is, err := ss.groups.Frozen(rec.ID); {
	case err != nil || is == "":
		return err
	case is == chat.FrozenUntilThawed:
		return heldError(rec.ID)
	}
	err := ss.groups.Thaw(rec.ID)
	if errors.Is(err, chat.ErrNotFound) {
		return nil // its session ends
	}
	ss.trail.Note(ctx, rec.Record, "thaw", map[string]string{"why": why}, err)
	return err
}

func heldError(id chat.ID) error {
	return fmt.Errorf("cannot use chat %s: it is frozen until an operator thaws it (chatd thaw): "+
		"%w", id, chat.ErrBusy)
}

// freeze freezes the processes of a session, unless a command is inside or still is false.
// It freezes before it looks for commands: see letIn. If the freeze cannot be audited it thaws again.
func (ss *sessions) freeze(
	ctx context.Context, rec subject, s *liveSession, why string, still func() bool,
) (froze bool, err error) {
	s.freezing.Lock()
	defer s.freezing.Unlock()
	if err := ss.groups.Freeze(rec.ID); err != nil {
		return false, err
	}
	if s.inside.Load() > 0 || !still() {
		return false, ss.groups.Thaw(rec.ID)
	}
	err = ss.trail.Write(ctx, rec.Record, "freeze", "done", map[string]string{
		"frozen": string(chat.FrozenUntilUsed), "why": why,
	})
	if err != nil {
		return false, errors.Join(err, ss.groups.Thaw(rec.ID))
	}
	ss.log.Debug("froze a chat", "chat", rec.ID, "why", why)
	return true, nil
}
