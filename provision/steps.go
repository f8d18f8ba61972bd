package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/state"
)

// step is one layer's part in the life of a chat. create applies it, drift describes how the
// host differs from what create left ("" if it does not), and remove undoes it. All three are
// idempotent: after a crash they are called again.
type step struct {
	name   string
	create func(*Manager, context.Context, state.Record) error
	drift  func(*Manager, context.Context, state.Record) (string, error)
	remove func(*Manager, context.Context, state.Record) error
}

// asleepSteps and awakeSteps are the life of a chat. Create reads them
// forwards, reap backwards, reconcile both ways.
//
// The order is a safety property. The packet rules stand before the account exists, and no
// process of the chat starts before the last wall is up. In reverse, every process has ended
// (session, limits) before the first wall is removed, and nothing runs or remains under the
// uid (leftovers) when its account is removed.
func asleepSteps() []step {
	return []step{
		{"egress", (*Manager).createEgress, (*Manager).driftEgress, (*Manager).removeEgress},
		{"account", (*Manager).createAccount, (*Manager).driftAccount, (*Manager).removeAccount},
		{"leftovers", (*Manager).createNothing, (*Manager).driftNothing, (*Manager).removeLeftovers},
		{"log", (*Manager).createNothing, (*Manager).driftNothing, (*Manager).removeLog},
		{"disk", (*Manager).createDisk, (*Manager).driftDisk, (*Manager).removeDisk},
		{"home", (*Manager).createHome, (*Manager).driftHome, (*Manager).removeHome},
		{"tmp", (*Manager).createTmp, (*Manager).driftTmp, (*Manager).removeTmp},
		{"runs", (*Manager).createNothing, (*Manager).driftNothing, (*Manager).removeRuns},
	}
}

// awakeSteps go on where asleepSteps end; see there.
func awakeSteps() []step {
	return []step{
		{"limits", (*Manager).createLimits, (*Manager).driftNothing, (*Manager).removeLimits},
		{"session", (*Manager).createSession, (*Manager).driftNothing, (*Manager).removeSession},
	}
}

// forwards takes the steps in order. If one fails, it and those before it are
// removed in reverse, and the errors of that are joined to the first.
func (m *Manager) forwards(ctx context.Context, verb string, steps []step, rec state.Record) error {
	for i, s := range steps {
		sys.Failpoint(verb + "." + s.name + ".before")
		began := time.Now()
		if err := s.create(m, ctx, rec); err != nil {
			if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
				err = fmt.Errorf("%w: %w", why, err) // a program that ctx ended reports only that it was killed
			}
			undo := m.backwards(context.WithoutCancel(ctx), "undo", steps[:i+1], rec)
			return errors.Join(fmt.Errorf("cannot %s chat %s at step %s: %w", verb, rec.ID, s.name, err), undo)
		}
		m.log.Debug("step", "verb", verb, "name", s.name, "chat", rec.ID, "took", time.Since(began))
		sys.Failpoint(verb + "." + s.name + ".after")
	}
	return nil
}

// backwards removes the steps in reverse and stops at the first failure. A later step may remove a
// wall, which must stand while something of the chat remains.
func (m *Manager) backwards(ctx context.Context, verb string, steps []step, rec state.Record) error {
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		sys.Failpoint(verb + "." + s.name + ".before")
		began := time.Now()
		if err := s.remove(m, ctx, rec); err != nil {
			return fmt.Errorf("cannot %s chat %s at step %s: %w", verb, rec.ID, s.name, err)
		}
		m.log.Debug("step", "verb", verb, "name", s.name, "chat", rec.ID, "took", time.Since(began))
		sys.Failpoint(verb + "." + s.name + ".after")
	}
	return nil
}

// mend creates what has drifted again, and lists it.
func (m *Manager) mend(ctx context.Context, steps []step, rec state.Record) (mended []string, err error) {
	for _, s := range steps {
		why, err := s.drift(m, ctx, rec)
		if err == nil && why != "" {
			mended = append(mended, s.name+": "+why)
			err = s.create(m, ctx, rec)
		}
		if err != nil {
			return mended, fmt.Errorf("cannot mend chat %s at step %s: %w", rec.ID, s.name, err)
		}
	}
	return mended, nil
}

// createNothing is for a step that has only a removal.
func (m *Manager) createNothing(context.Context, state.Record) error { return nil }

// driftNothing is for a step that has nothing lasting to compare.
func (m *Manager) driftNothing(context.Context, state.Record) (string, error) { return "", nil }
