package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy/egresslog"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/leftovers"
	"github.com/chatd/chatd/provision/packetrules"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/shares"
	"github.com/chatd/chatd/state"
)

// life takes chats through their steps: create, wake, sleep and reap.
type life struct {
	*sessions
	// newAccounts makes the accounts of new chats; useradd may have made those of older ones.
	newAccounts account.Backend
	useradd     *account.Useradd
	programs    *session.Programs
	packets     *packetrules.Rules
	starts      *admission.Starts
	shares      *shares.Shares
	calls       *filecall.Calls
	traffic     *egresslog.Log
	later       *session.Later
	reaps       chan struct{} // one for each reap that no caller waits for
}

// step is one layer's part in the life of a chat. create applies it, drift describes how the
// host differs from what create left ("" if it does not), and remove undoes it. All three are
// idempotent: after a crash they are called again. One that a step does not need is nil.
type step struct {
	name   string
	create func(context.Context, subject) error
	drift  func(context.Context, subject) (string, error)
	remove func(context.Context, subject) error
}

// steps are taken in order, and removed in reverse.
type steps []step

// asleepSteps and awakeSteps are the life of a chat. Create reads them
// forwards, reap backwards, reconcile both ways.
//
// The order is a safety property. The packet rules stand before the account exists, and no
// process of the chat starts before the last wall is up. In reverse, every process has ended
// (session, limits) before the first wall is removed, and nothing runs or remains under the
// uid (leftovers) when its account is removed.
func (l *life) asleepSteps() steps {
	return steps{
		{"egress", ofRecord(l.packets.Create), drift(l.packets.Drift),
			nil}, // rules are of blocks of uids, and stay
		{"account", l.createAccount, l.driftAccount, l.removeAccount},
		{"leftovers", nil, nil, l.removeLeftovers},
		{"log", nil, nil, func(_ context.Context, c subject) error { return l.logs.Remove(c.ID) }},
		{"disk", l.disk.create, l.disk.drift, l.disk.remove},
		{"home", l.createHome, drift(l.dirs.DriftHome), plain(l.dirs.RemoveHome)},
		{"tmp", plain(l.dirs.CreateTmp), drift(l.dirs.DriftTmp), plain(l.dirs.RemoveTmp)},
		{"runs", nil, nil, func(ctx context.Context, c subject) error { return l.runs.Remove(ctx, c.ID) }},
	}
}

// awakeSteps go on where asleepSteps end; see there. The quota comes again: the limits may have
// changed while the chat slept.
func (ss *sessions) awakeSteps() steps {
	return steps{
		{"quota", ss.disk.create, nil, nil},
		{"limits", ss.createLimits, nil, ss.removeLimits},
		{"session", ss.createSession, nil, ss.removeSession},
	}
}

// reapSteps are the whole life, and what a reap alone removes. The record is the last that
// reconcile needs after a crash. The policy that the chat had for itself goes after it: whoever
// applies the packet rules meanwhile goes by the records, and so does the next daemon.
func (l *life) reapSteps() steps {
	return slices.Concat(steps{
		{"exception", nil, nil, ofRecord(l.packets.DropException)},
		{"forget", nil, nil, l.forget},
		{"sync", nil, nil, l.dirs.syncRemoved},
	}, l.asleepSteps(), l.awakeSteps(), steps{{"calls", nil, nil, l.endCalls}})
}

// forwards creates the steps in order. If one fails, it and those before it are
// removed in reverse, and the errors of that are joined to the first.
func (all steps) forwards(ctx context.Context, log *slog.Logger, verb string, c subject) error {
	for i, s := range all {
		if err := s.do(ctx, log, verb, c, s.create); err != nil {
			if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
				err = fmt.Errorf("%w: %w", why,
					err) // a program that ctx ended reports only that it was killed
			}
			undo := all[:i+1].backwards(context.WithoutCancel(ctx), log, "undo", c)
			return errors.Join(fmt.Errorf("cannot %s chat %s at step %s: %w", verb, c.ID, s.name, err), undo)
		}
	}
	return nil
}

// backwards removes the steps in reverse and stops at the first failure. A later step may remove a
// wall, which must stand while something of the chat remains.
func (all steps) backwards(ctx context.Context, log *slog.Logger, verb string, c subject) error {
	for _, s := range slices.Backward(all) {
		if err := s.do(ctx, log, verb, c, s.remove); err != nil {
			return fmt.Errorf("cannot %s chat %s at step %s: %w", verb, c.ID, s.name, err)
		}
	}
	return nil
}

// do does one act of the step, unless the step does not have it.
func (s step) do(
	ctx context.Context, log *slog.Logger, verb string, c subject, act func(context.Context, subject) error,
) error {
	sys.Failpoint(verb + "." + s.name + ".before")
	began := time.Now()
	if act != nil {
		if err := act(ctx, c); err != nil {
			return err
		}
		log.Debug("step", "verb", verb, "name", s.name, "chat", c.ID, "took", time.Since(began))
	}
	sys.Failpoint(verb + "." + s.name + ".after")
	return nil
}

// mend creates what has drifted again, and lists it.
func (all steps) mend(ctx context.Context, c subject) (mended []string, err error) {
	for _, s := range all {
		if s.drift == nil {
			continue
		}
		why, err := s.drift(ctx, c)
		if err == nil && why != "" {
			mended = append(mended, s.name+": "+why)
			err = s.create(ctx, c)
		}
		if err != nil {
			return mended, fmt.Errorf("cannot mend chat %s at step %s: %w", c.ID, s.name, err)
		}
	}
	return mended, nil
}

// ofRecord is an act that needs no profile.
func ofRecord(act func(context.Context, state.Record) error) func(context.Context, subject) error {
	return func(ctx context.Context, c subject) error { return act(ctx, c.Record) }
}

// plain is an act that nothing has to wait for.
func plain(act func(state.Record) error) func(context.Context, subject) error {
	return func(_ context.Context, c subject) error { return act(c.Record) }
}

// drift is a comparison that nothing has to wait for.
func drift(of func(state.Record) (string, error)) func(context.Context, subject) (string, error) {
	return func(_ context.Context, c subject) (string, error) { return of(c.Record) }
}

func (l *life) createHome(_ context.Context, c subject) error {
	return l.dirs.CreateHome(c.Record, c.profile.Skeleton)
}

// createAccount writes the account and then looks the user up in the Name Service Switch by name
// and by number. A record that it does not read is not an account. Only [account.Try] looks the group
// up. For that nss-systemd reads every name in /etc/userdb, 3 ms at 1,000 chats.
//
// The chat's record names the backend, so that removeAccount uses the same one. An empty name
// means userdb: only the slow backend needs a second commit.
func (l *life) createAccount(ctx context.Context, rec subject) error {
	if l.layers.Without(chat.LayerAccount) {
		return nil
	}
	a := rec.account()
	backend := l.accountBackend(rec)
	if rec.Account == "" && rec.Phase == chat.Creating {
		backend = l.newAccounts
	}
	if backend.Name() == account.UseraddName && rec.Account == "" {
		if err := l.store.SetAccount(rec.ID, account.UseraddName, l.trail.Event(ctx, rec.Record, "create",
			"intent", map[string]string{"account": account.UseraddName})); err != nil {
			return err
		}
	}
	if err := backend.Create(ctx, a); err != nil || slices.Contains(l.opt.AllowMissing, chat.LayerAccount) {
		return err
	}
	return account.Resolves(ctx, a)
}

func (l *life) driftAccount(_ context.Context, rec subject) (string, error) {
	if l.layers.Without(chat.LayerAccount) {
		return "", nil
	}
	return l.accountBackend(rec).Drift(rec.account())
}

func (l *life) removeAccount(ctx context.Context, rec subject) error {
	// rec may be older than the backend that createAccount has stored.
	if now, err := l.chats.get(rec.ID); err == nil {
		rec = now
	}
	return l.accountBackend(rec).Remove(ctx, rec.account())
}

func (l *life) accountBackend(rec subject) account.Backend {
	if rec.Account == account.UseraddName {
		return l.useradd
	}
	return l.dirs.userdb
}

// endCalls ends the calls of file tools, and names the reap as the end of runs.
func (l *life) endCalls(ctx context.Context, c subject) error {
	l.calls.Drain(ctx, c.ID)
	l.runs.SetEndReason(c.ID, chat.EndedByReap)
	return nil
}

// removeLeftovers removes what the chat's uid has outside the chat's own trees.
func (l *life) removeLeftovers(ctx context.Context, c subject) error {
	var writable []string
	for _, e := range c.profile.ExposePaths {
		if e.Mode == chat.ReadWrite {
			writable = append(writable, e.Source)
		}
	}
	return leftovers.Reaping{Store: l.store, Trail: l.trail, Log: l.log}.Remove(ctx, c.Record, writable)
}

// forget removes what chatd knows of the chat, and last the record, which reconcile needs until then.
func (l *life) forget(ctx context.Context, c subject) error {
	l.trail.Report("chat "+string(c.ID), nil)
	l.traffic.Forget(c.ID)
	return l.store.Forget(c.ID, l.trail.Event(ctx, c.Record, "reap", "done", nil))
}
