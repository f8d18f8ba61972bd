package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// triedTimeout is how long a caller waits for the first probe, about a second on an idle host,
// before its call fails as busy.
const triedTimeout = 2 * time.Second

// Start opens the state directory, applies the packet rules and adopts surviving sessions and
// runs. It tries no wall, which takes seconds, on a busy host minutes. The Manager shows, sleeps
// and reaps chats; nothing new begins before [Manager.Settle] has tried the walls.
func Start(ctx context.Context, opt Options) (*Manager, error) {
	m := newManager(opt)
	for _, step := range []func(context.Context) error{
		m.checkOptions, m.takeKeys, m.checkRules, m.openState, m.checkYounger, m.openGroups,
		m.prepareBesideWalls, m.adoptSessions, m.adoptOldRuns, m.endCutOff,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, m.closeState())
		}
	}
	m.sayOpenings()
	m.bg, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.watchDues()
	m.done.Go(func() { m.watchWall(m.bg) })
	m.done.Go(func() { m.watchLimits(m.bg) })
	m.done.Go(func() { m.enforcer.Follow(m.bg, m.needsEnforcer) })
	m.done.Go(func() { m.watchRefused(m.bg) })
	if !m.without(chat.LayerSockets) {
		m.done.Go(func() { m.watchSockets(m.bg) })
	}
	return m, nil
}

// Settle tries every wall and refuses with [chat.ErrUnsupported] if a required one is missing. It
// finishes what a crash left, and starts the loop that reconciles. It is called once; the caller
// closes the Manager after it has returned, even with an error.
func (m *Manager) Settle(ctx context.Context) error {
	for _, step := range []func(context.Context) error{m.chooseAccount, m.probe, m.require, m.countRules, m.raiseEnforcer} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	m.settled.Store(true)
	close(m.tried)
	m.firstReconcile(ctx)
	m.reconciled.Store(true)
	m.done.Go(func() { m.reconcileLoop(m.bg) })
	return nil
}

// mayBegin refuses every start until a probe has found each required wall in force since chatd
// was started. A later probe does not change that: on a host whose disk is full now, the living
// sessions began behind walls that were in force.
func (m *Manager) mayBegin(ctx context.Context) error {
	if m.fit.Load() {
		return m.awaitWall(ctx)
	}
	select {
	case <-m.tried:
	case <-time.After(triedTimeout):
		return fmt.Errorf("cannot begin anything yet: chatd has just started and is still trying its walls; ask again in a moment: %w", chat.ErrBusy)
	case <-ctx.Done():
		return fmt.Errorf("cannot wait until the walls are tried: %w: %w", context.Cause(ctx), chat.ErrBusy)
	}
	if m.fit.Load() {
		return m.awaitWall(ctx)
	}
	m.lookAgain()
	if missing := m.missing(); len(missing) > 0 {
		return fmt.Errorf("cannot begin anything: required layers are missing: %s: see chatd doctor: %w", joinNames(missing), chat.ErrUnsupported)
	}
	return fmt.Errorf("cannot begin anything: chatd cannot tell whether these hold: %s: %w", m.whyUntold(), chat.ErrBusy)
}

// beginCall is the begin of a file tool.
func (m *Manager) beginCall(ctx context.Context, id chat.ID) (_ context.Context, done func(), err error) {
	if err := m.mayBegin(ctx); err != nil {
		return ctx, nil, err
	}
	return m.calls.begin(ctx, id)
}

// required returns the layers in the given state that config does not excuse.
func (m *Manager) required(state chat.LayerState) []chat.Layer {
	return slices.DeleteFunc(m.hostLayers(), func(l chat.Layer) bool {
		return l.State != state || slices.Contains(m.opt.AllowMissing, l.Name) || m.without(l.Name)
	})
}

// judgeFit sets fit if the probe found every required layer in force.
func (m *Manager) judgeFit() {
	if len(m.required(chat.LayerUnknown)) == 0 && len(m.missing()) == 0 && !m.unprepared.Load() {
		m.fit.Store(true)
	}
}

func (m *Manager) whyUntold() string {
	var why []string
	for _, l := range m.required(chat.LayerUnknown) {
		why = append(why, fmt.Sprintf("%s (%s; %s)", l.Name, l.Probe, l.Fix))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if what, ok := m.findings[aboutOwn]; ok {
		why = append(why, fmt.Sprintf("%s (%s)", aboutOwn, what))
	}
	return strings.Join(why, ", ")
}

// lookAgain requests another probe, for layers that the last one could not try.
func (m *Manager) lookAgain() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// probeUntold probes again unless every required layer was found in force.
func (m *Manager) probeUntold(ctx context.Context) error {
	if m.fit.Load() {
		return nil
	}
	if m.unprepared.Load() {
		if err := m.prepareOrReport(ctx); err != nil {
			return err
		}
	}
	if err := m.probe(ctx); err != nil || m.fit.Load() {
		return err
	}
	if missing := m.missing(); len(missing) > 0 {
		return fmt.Errorf("nothing new begins: required layers are missing: %s", joinNames(missing))
	}
	return fmt.Errorf("nothing new begins: chatd cannot tell whether these hold: %s", m.whyUntold())
}

// prepareBesideWalls makes directories and PATHs while it applies the packet rules: neither needs
// the other. If chatd then refuses to start, the rules stay, and let nothing through.
func (m *Manager) prepareBesideWalls(ctx context.Context) error {
	var prepared error
	var beside sync.WaitGroup
	beside.Go(func() { prepared = m.prepareOrReport(ctx) })
	err := m.raiseWalls(ctx)
	beside.Wait()
	return errors.Join(prepared, err)
}

// aboutOwn is the subject of the finding about directories that there was no room for.
const aboutOwn = "chatd's own directories"

// prepareOrReport is prepareHost; a lack of room is a finding, and it is called again later.
func (m *Manager) prepareOrReport(ctx context.Context) error {
	err := m.prepareHost(ctx)
	m.unprepared.Store(err != nil)
	if cannotTell(err) {
		m.setFinding(aboutOwn, err)
		return nil
	}
	m.clearFinding(aboutOwn)
	return err
}

// adoptSessions adopts surviving sessions before any answer could call their chats asleep.
// Reconcile ends sessions that cannot be adopted.
func (m *Manager) adoptSessions(ctx context.Context) error {
	ids, err := m.sessionDirs()
	if err != nil {
		return err
	}
	for i, id := range ids {
		rec, err := m.store.Get(id)
		if err != nil || rec.Phase != chat.Ready {
			continue
		}
		if err := m.adopt(rec); err != nil {
			m.log.Debug("not adopted", "chat", id, "why", err)
		} else {
			m.log.Info("adopted a session", "chat", id)
		}
		m.opt.Progress(fmt.Sprintf("looked for %d of %d sessions", i+1, len(ids)))
		if ctx.Err() != nil {
			return fmt.Errorf("cannot look for sessions: %w", context.Cause(ctx))
		}
	}
	return nil
}

// adoptOldRuns is adoptRuns; its error becomes a finding.
func (m *Manager) adoptOldRuns(ctx context.Context) error {
	m.report("background runs", m.adoptRuns(ctx))
	return nil
}

func joinNames(names []chat.LayerName) string {
	var s []string
	for _, n := range names {
		s = append(s, string(n))
	}
	return strings.Join(s, ", ")
}
