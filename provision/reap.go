package provision

import (
	"context"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// Reap removes every trace of the chat from the host; its uid is never reused. A reap that has
// begun goes on when the caller disconnects, and reconcile finishes it after a crash.
func (m *Manager) Reap(ctx context.Context, id chat.ID) error {
	if _, err := m.chats.reach(ctx, id); err != nil {
		return err
	}
	m.calls.Cut(id) // one may hold the lock
	c, unlock, err := m.chats.lockChat(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return m.reapReady(context.WithoutCancel(ctx), c)
}

// reapReady is Reap for a caller that holds the chat's lock. No end of ctx stops it.
func (l *life) reapReady(ctx context.Context, rec subject) error {
	if rec.Phase != chat.Reaping {
		intent := l.trail.Event(ctx, rec.Record, "reap", "intent", nil)
		if err := l.store.SetPhase(rec.ID, chat.Reaping, intent); err != nil {
			return err
		}
	}
	sys.Failpoint("reap.record.after")
	if err := l.reapLocked(ctx, rec); err != nil {
		return l.trail.Outcome(ctx, rec.Record, "reap", nil, err)
	}
	if !l.layers.Fit() {
		l.starts.LookAgain() // the reap freed room
	}
	return nil
}

// reapLocked is Reap for a caller that holds the chat's lock and has set the phase.
func (l *life) reapLocked(ctx context.Context, rec subject) error {
	return l.reapSteps().backwards(ctx, l.log, "reap", rec)
}

// reapBehind finishes a reap that another daemon or caller began. A slow reap delays neither the
// start nor the reconcile of other chats; it holds the chat's lock until it is done.
func (l *life) reapBehind(rec subject, until time.Time, unlock func()) error {
	late, err := l.later.Do("reap of chat "+string(rec.ID), time.Until(until),
		func(ctx context.Context) error {
			defer unlock()
			select { // only a few simultaneously: they share the host's disk
			case l.reaps <- struct{}{}:
				defer func() { <-l.reaps }()
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			err := l.reapLocked(ctx, rec)
			l.trail.Report("chat "+string(rec.ID), err)
			return err
		}, nil)
	if late {
		l.log.Info("a reap goes on behind", "chat", rec.ID)
	}
	return err
}

const (
	// reapTimeout is how long one reconcile of all chats waits for their reaps in total.
	reapTimeout = 10 * time.Second
	// maxReaps bounds the simultaneous reaps that no caller waits for.
	maxReaps = 4
)
