package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/state"
)

// Reap removes every trace of the chat from the host; its uid is never reused. A reap that has
// begun goes on when the caller disconnects, and reconcile finishes it after a crash.
func (m *Manager) Reap(ctx context.Context, id chat.ID) error {
	if _, err := m.reach(ctx, id); err != nil {
		return err
	}
	m.calls.Cut(id)
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if err != nil {
		return err
	}
	return m.reapReady(context.WithoutCancel(ctx), rec)
}

// reapReady is Reap for a caller that holds the chat's lock. No end of ctx stops it.
func (m *Manager) reapReady(ctx context.Context, rec state.Record) error {
	if rec.Phase != chat.Reaping {
		intent := m.event(ctx, rec, "reap", "intent", nil)
		if err := m.store.SetPhase(rec.ID, chat.Reaping, intent); err != nil {
			return err
		}
	}
	sys.Failpoint("reap.record.after")
	if err := m.reapLocked(ctx, rec); err != nil {
		return m.auditOutcome(ctx, rec, "reap", nil, err)
	}
	if !m.layers.Fit() {
		m.lookAgain() // the reap freed room
	}
	return nil
}

// reapLocked takes the steps backwards and then deletes the record, which comes last because
// reconcile needs it after a crash.
func (m *Manager) reapLocked(ctx context.Context, rec state.Record) error {
	m.calls.Drain(ctx, rec.ID)
	m.runs.Because(rec.ID, chat.EndedByReap)
	if err := m.backwards(ctx, "reap", awakeSteps(), rec); err != nil {
		return err
	}
	if err := m.backwards(ctx, "reap", asleepSteps(), rec); err != nil {
		return err
	}
	if err := m.syncRemoved(); err != nil {
		return fmt.Errorf("cannot reap chat %s: %w", rec.ID, err)
	}
	sys.Failpoint("reap.forget.before")
	m.clearFinding("chat " + string(rec.ID))
	m.traffic.Forget(rec.ID)
	if err := m.store.Forget(rec.ID, m.event(ctx, rec, "reap", "done", nil)); err != nil {
		return err
	}
	m.dropException(ctx, rec)
	return nil
}

// reapBehind finishes a reap that another daemon or caller began. A slow reap delays neither the
// start nor the reconcile of other chats; it holds the chat's lock until it is done.
func (m *Manager) reapBehind(rec state.Record, until time.Time, unlock func()) error {
	late, err := m.later.Do("reap of chat "+string(rec.ID), time.Until(until), func(ctx context.Context) error {
		defer unlock()
		select { // only a few simultaneously: they share the host's disk
		case m.reaps <- struct{}{}:
			defer func() { <-m.reaps }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := m.reapLocked(ctx, rec)
		m.report("chat "+string(rec.ID), err)
		return err
	}, nil)
	if late {
		m.log.Info("a reap goes on behind", "chat", rec.ID)
	}
	return err
}

const (
	// reapTimeout is how long one reconcile of all chats waits for their reaps in total.
	reapTimeout = 10 * time.Second
	// maxReaps bounds the simultaneous reaps that no caller waits for.
	maxReaps = 4
)

// syncRemoved makes the removals durable by an fsync(2) of the parent directories. Otherwise a
// power cut could bring back files of a chat whose record is gone.
func (m *Manager) syncRemoved() error {
	var errs []error
	for _, name := range append([]string{m.userdb.Dir, m.paths.logs}, m.paths.trees()...) {
		dir, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(dir.Sync(), dir.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot make the removals in %s durable: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
