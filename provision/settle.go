package provision

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/layers"
)

// Start opens the state directory, applies the packet rules and adopts surviving sessions and
// runs. It tries no wall, which takes seconds, on a busy host minutes. The Manager shows, sleeps
// and reaps chats; nothing new begins before [Manager.Settle] has tried the walls.
func Start(ctx context.Context, opt Options) (*Manager, error) {
	m := newManager(opt)
	m.bg, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	checkRules := func(context.Context) error { return m.policy.CheckFirst() }
	// Before sessions are adopted: the enforcer that they need may be hung.
	follow := func(context.Context) error {
		m.done.Go(func() { m.policy.Follow(m.bg) })
		return nil
	}
	for _, step := range []func(context.Context) error{
		m.checkOptions, checkRules, m.openState, m.claimRules, m.checkYounger, m.openSecrets, m.openGroups,
		m.prepareBesideWalls, follow, m.adoptSessions, m.adoptOldRuns, m.adoptDue,
	} {
		if err := step(ctx); err != nil {
			m.stop()
			return nil, errors.Join(err, m.closeState())
		}
	}
	m.sayOpenings()
	m.done.Go(func() { m.watchWall(m.bg) })
	m.done.Go(func() { m.watchLimits(m.bg) })
	m.done.Go(func() { m.gateway.Follow(m.bg) })
	m.done.Go(func() { m.traffic.Run(m.bg) })
	if !m.without(chat.LayerSockets) {
		m.done.Go(func() { m.watchSockets(m.bg) })
	}
	return m, nil
}

// Settle tries every wall and refuses with [chat.ErrUnsupported] if a required one is missing. It
// finishes what a crash left, and starts the loop that reconciles. It is called once; the caller
// closes the Manager after it has returned, even with an error.
func (m *Manager) Settle(ctx context.Context) error {
	require := func(context.Context) error { return m.layers.Require() }
	m.enableQuotas(ctx)
	for _, step := range []func(context.Context) error{m.openProber, m.probe, require, m.policy.Count, m.raiseEnforcer} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	m.layers.Settle()
	m.report("datagrams", m.gateway.TryReply())
	m.firstReconcile(ctx)
	m.reconciled.Store(true)
	m.done.Go(func() { m.reconcileLoop(m.bg) })
	if !m.without(chat.LayerDisk) {
		m.done.Go(func() { m.diskWatch.Run(m.bg) })
	}
	m.done.Go(func() { m.watchUnused(m.bg) })
	m.done.Go(func() { m.idle.Run(m.bg, m.shortestIdle()) })
	return nil
}

// mayBegin refuses every start until a probe has found each required wall in force, and while the
// packet rules are not as chatd wrote them.
func (m *Manager) mayBegin(ctx context.Context) error {
	if err := m.layers.Await(ctx); err != nil {
		if m.layers.Settled() {
			m.lookAgain()
		}
		return err
	}
	return m.awaitWall(ctx)
}

// lookAgain requests another probe, for layers that the last one could not try.
func (m *Manager) lookAgain() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// probeUnknown probes again unless every required layer was found in force.
func (m *Manager) probeUnknown(ctx context.Context) error {
	if m.layers.Fit() {
		return nil
	}
	if m.layers.Unprepared() != nil {
		if err := m.prepareOrReport(ctx); err != nil {
			return err
		}
	}
	if err := m.probe(ctx); err != nil || m.layers.Fit() {
		return err
	}
	return fmt.Errorf("nothing new begins: %s", m.layers.Unfit())
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

// prepareOrReport is prepareHost; a lack of room is a finding, and it is called again later.
func (m *Manager) prepareOrReport(ctx context.Context) error {
	err := m.prepareHost(ctx)
	m.layers.SetPrepared(err)
	if layers.CannotTell(err) {
		m.setFinding(layers.OwnDirectories, err)
		return nil
	}
	m.clearFinding(layers.OwnDirectories)
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
		// Of a chat that was just made, the crash may have lost that it is ready.
		if err != nil || rec.Phase == chat.Reaping {
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
