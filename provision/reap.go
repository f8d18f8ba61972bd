package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Reap takes every trace of the chat off the host; its uid is never given
// again. Once it has begun it goes on, also if the caller goes away, and after a
// crash reconcile finishes it.
func (m *Manager) Reap(ctx context.Context, id chat.ID) error {
	if _, err := m.reach(ctx, id); err != nil {
		return err
	}
	m.calls.cut(id)
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := m.store.Get(id)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if rec.Phase != chat.Reaping {
		if err := m.store.SetPhase(id, chat.Reaping, m.event(ctx, rec, "reap", "intent", nil)); err != nil {
			return err
		}
	}
	failpoint("reap.record.after")
	if err := m.reapLocked(ctx, rec); err != nil {
		return errors.Join(err, m.auditOutcome(ctx, rec, "reap", nil, err))
	}
	if !m.fit.Load() {
		m.lookAgain() // there is more room now
	}
	return nil
}

// reapLocked goes back through the steps and then forgets the record: what is
// done last is what a crash would need to finish from.
func (m *Manager) reapLocked(ctx context.Context, rec state.Record) error {
	m.endRunsBecause(rec.ID, chat.EndedByReap)
	if err := m.backwards(ctx, "reap", awakeSteps(), rec); err != nil {
		return err
	}
	if err := m.backwards(ctx, "reap", asleepSteps(), rec); err != nil {
		return err
	}
	if err := m.syncRemoved(); err != nil {
		return fmt.Errorf("cannot reap chat %s: %w", rec.ID, err)
	}
	failpoint("reap.forget.before")
	m.clearFinding("chat " + string(rec.ID))
	return m.store.Forget(rec.ID, m.event(ctx, rec, "reap", "done", nil))
}

// reapBehind goes on with a reap that another daemon or caller began. One that takes long holds up
// neither the start nor the look at the other chats; its lock is held until it is done.
func (m *Manager) reapBehind(rec state.Record, until time.Time, unlock func()) error {
	late, err := m.behind("reap of chat "+string(rec.ID), time.Until(until), func(ctx context.Context) error {
		defer unlock()
		select { // a few at a time: the host's own disk is what they share
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
	// reapPatience is how long a look at all chats waits for their reaps, all together.
	reapPatience = 10 * time.Second
	// reapsAtOnce bounds the reaps that nobody waits for.
	reapsAtOnce = 4
)

// syncRemoved makes durable what was removed of a chat, by the directories that it lay in
// (fsync(2)): a power cut that brought it back without its record would leave things that
// nobody can tell whose they are.
func (m *Manager) syncRemoved() error {
	var errs []error
	for _, name := range []string{m.userdb.dir, m.paths.logs, m.paths.homes, m.paths.tmp, m.paths.varTmp} {
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
