package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/state"
)

// Start opens the state directory, applies the packet rules and adopts surviving sessions and
// runs. It tries no wall, which takes seconds, on a busy host minutes. The Manager shows, sleeps
// and reaps chats; nothing new begins before [Manager.ProbeAndReconcile] has tried the walls.
func Start(ctx context.Context, opt Options) (*Manager, error) {
	if err := opt.prepare(); err != nil {
		return nil, err
	}
	store, err := state.Open(state.Options{
		Dir: opt.State, UIDs: opt.UIDs, BlockSize: opt.UIDs.BlockSize(), AuditMax: opt.AuditMax,
		AuditKeep: opt.AuditKeep,
	})
	if err != nil {
		return nil, err
	}
	m := newManager(opt, store)
	m.clock.Begin()
	openGroups := func(ctx context.Context) error { return m.groups.open(ctx, opt) }
	err = inOrder(ctx, m.checkHost, m.packets.Claim, m.secrets.open, openGroups, m.prepareBesideWalls)
	if err == nil {
		m.done.Go(func() { m.policy.Follow(m.bg) }) // first: the enforcer that sessions need may be hung
		err = inOrder(ctx, m.adoptAll, m.adoptRuns, m.adoptDue)
	}
	if err != nil {
		m.stop()
		return nil, errors.Join(err, m.closeState())
	}
	m.sayOpenings()
	m.done.Go(func() { m.packets.Watch(m.bg) })
	m.done.Go(func() { m.watchLimits(m.bg) })
	m.done.Go(func() { m.gateway.Follow(m.bg) })
	m.done.Go(func() { m.traffic.Run(m.bg) })
	if !m.layers.Without(chat.LayerSockets) {
		m.done.Go(func() { m.watchSockets(m.bg) })
	}
	return m, nil
}

// inOrder acts until an act fails.
func inOrder(ctx context.Context, acts ...func(context.Context) error) (err error) {
	for i := 0; i < len(acts) && err == nil; i++ {
		err = acts[i](ctx)
	}
	return err
}

// checkHost refuses file rules that cannot be kept, a host that is older than its records, and one
// whose boots cannot be told apart.
func (m *Manager) checkHost(context.Context) error {
	_, err := sys.BootID()
	return cmp.Or(err, m.policy.CheckFirst(), m.dirs.checkYounger(m.opt, m.store.WasGiven))
}

// ProbeAndReconcile tries every wall and refuses with [chat.ErrUnsupported] if a required one is missing. It
// finishes what a crash left, and starts the loop that reconciles. It is called once; the caller
// closes the Manager after it has returned, even with an error.
func (m *Manager) ProbeAndReconcile(ctx context.Context) error {
	require := func(context.Context) error { return m.layers.Require() }
	m.disk.enable(ctx)
	if err := inOrder(ctx, m.openProber, m.probe, require, m.policy.Count, m.raiseEnforcer); err != nil {
		return err
	}
	m.layers.EndTrying()
	m.trail.Report("datagrams", m.gateway.TryReply())
	if !m.layers.Stands(chat.LayerEgress) { // else the probe has just compared the packet rules
		m.trail.Report("the packet rules", m.packets.Mend(ctx))
	}
	m.reconcile(ctx, m.opt.Progress)
	m.reconciled.Store(true)
	m.done.Go(func() { m.reconcileLoop(m.bg) })
	m.done.Go(func() { m.disk.diskWatch.Run(m.bg) })
	m.done.Go(func() { m.watchUnused(m.bg) })
	m.done.Go(func() { m.idle.Run(m.bg, m.shortestIdle()) })
	return nil
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
	err := m.packets.Raise(ctx)
	beside.Wait()
	return errors.Join(prepared, err)
}

// prepareOrReport is prepareHost; a lack of room is a finding, and it is called again later.
func (m *Manager) prepareOrReport(ctx context.Context) error {
	err := m.prepareHost(ctx)
	m.layers.SetPrepared(err)
	if layers.CannotTell(err) {
		m.trail.Report(layers.OwnDirectories, err)
		return nil
	}
	m.trail.Report(layers.OwnDirectories, nil)
	return err
}

// adoptAll adopts surviving sessions before any answer could call their chats asleep.
// Reconcile ends sessions that cannot be adopted.
func (ss *sessions) adoptAll(ctx context.Context) error {
	ids, err := ss.dirs.sessionDirs()
	if err != nil {
		return err
	}
	for i, id := range ids {
		rec, err := ss.chats.get(id)
		// Of a chat that was just made, the crash may have lost that it is ready.
		if err != nil || rec.Phase == chat.Reaping {
			continue
		}
		if err := ss.adopt(rec); err != nil {
			ss.log.Debug("not adopted", "chat", id, "why", err)
		}
		ss.opt.Progress(fmt.Sprintf("looked for %d of %d sessions", i+1, len(ids)))
		if ctx.Err() != nil {
			return fmt.Errorf("cannot look for sessions: %w", context.Cause(ctx))
		}
	}
	return nil
}

// openProber makes what tries the walls, and chooses the backend of new accounts.
func (m *Manager) openProber(ctx context.Context) (err error) {
	o := hostprobe.Options{
		UID: m.dirs.probeUID, Profiles: m.opt.Profiles, Layers: m.layers, Starter: m.starter,
		Groups: m.groups, Units: m.dirs.units, Flows: m.gateway.Flows,
		Homes: m.dirs.Homes, HomeMode: m.dirs.HomeMode, Hidden: m.dirs.commands, Disks: m.disk.diskQuotas,
		// A chat can fill the file system of the homes.
		HomeParent: m.dirs.probe, TmpParent: filepath.Join(m.dirs.probe, "tmp"),
		VarTmpParent: filepath.Join(m.dirs.probe, "vartmp"),
		Chats:        m.chats.someUsers, Log: m.log,
	}
	if m.dirs.units { // PAM knows only one directory
		o.TmpParent, o.VarTmpParent = m.dirs.Tmp, m.dirs.VarTmp
	}
	o.Table, o.NoTable = m.packets.Table()
	m.prober = hostprobe.New(o)
	m.newAccounts, err = m.prober.ChooseAccount(ctx, m.opt.Account, m.dirs.userdb, m.useradd)
	return err
}

// probe tries every wall, in sessions like any other.
func (m *Manager) probe(ctx context.Context) error {
	unlock, err := m.chats.locks.Lock(ctx, probeID)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := m.prober.Try(ctx, m.mounts.views.Of(m.mounts.viewer(m.chats.subject(state.Record{
		ID: probeID, UID: m.dirs.probeUID, Profile: chat.DefaultProfile, Phase: chat.Ready,
	}))))
	if err != nil {
		return err
	}
	m.layers.Put(found)
	return nil
}

// installPrograms installs chatd-shim and the PATH of each profile into root's own directories.
// The directory that chatd itself was started from may be writable.
func (m *Manager) installPrograms() error {
	if err := safefs.InstallProgram(m.opt.Shim, m.dirs.shim); err != nil {
		return err
	}
	if a := m.opt.Archives; a != nil {
		if err := safefs.InstallProgram(a.Program, m.dirs.archive); err != nil {
			return err
		}
	}
	return m.programs.Link(m.opt.Profiles)
}
