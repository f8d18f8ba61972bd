package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// aboutWalls is the subject of the finding about walls that could not be probed.
const aboutWalls = "the walls"

// Reconcile compares the host with the records and mends the differences. It finishes creates
// and reaps that were interrupted, makes missing accounts, homes and rules again, and ends
// sessions without a record. It runs at start and every minute. Host's findings list the
// differences that it cannot mend.
func (m *Manager) Reconcile(ctx context.Context) {
	m.trail.Report("the packet rules", m.packets.Mend(ctx))
	m.reconcile(ctx, func(string) {})
}

func (m *Manager) reconcile(ctx context.Context, progress func(string)) {
	m.trail.Report(aboutWalls, m.probeUnknown(ctx))
	m.disk.enable(ctx)
	m.trail.Report("the audit log and records", m.store.Behind())
	_ = m.trail.HasRoom() // a finding
	all, until := m.store.All(), time.Now().Add(reapTimeout)
	for i, rec := range all {
		if ctx.Err() != nil {
			return
		}
		if m.atWork(rec.ID) {
			m.chats.touch(rec.ID) // so that a crash loses a minute of it at most
		}
		m.trail.Report("chat "+string(rec.ID), m.reconcileChat(ctx, rec.ID, until))
		progress(fmt.Sprintf("looked after %d of %d chats", i+1, len(all)))
	}
	m.trail.Report("units without a chat", m.quarantine(ctx))
	m.trail.Report("sessions without a chat", m.clearOrphans(ctx))
	m.trail.Report("things without a chat", m.reportStrays())
}

func (m *Manager) reconcileChat(ctx context.Context, id chat.ID, until time.Time) error {
	unlock, free := m.chats.locks.TryLock(id)
	if !free {
		return nil // the lock's holder changes the chat now; the next reconcile checks it
	}
	defer func() { unlock() }()
	rec, err := m.chats.get(id)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err = errors.Join(err, m.archiver.endSnapshot(id)); err != nil {
		return err
	}
	switch rec.Phase {
	case chat.Creating:
		if rec.Unarchives != "" {
			_, err := m.giveUpUnarchive(ctx, rec)
			return err
		}
		st := m.starts.New()
		defer st.End()
		if rec, err = m.createLocked(ctx, id, st); err != nil {
			return err
		}
		return m.reconcileSession(ctx, rec)
	case chat.Reaping:
		give := unlock
		unlock = func() {} // the reap releases the lock
		return m.reapBehind(rec, until, give)
	}
	mended, err := m.asleepSteps().mend(ctx, rec)
	if len(mended) > 0 {
		m.log.Warn("mended a chat", "chat", id, "what", mended)
		err = m.trail.Outcome(ctx, rec.Record, "mend",
			map[string]string{"what": strings.Join(mended, "; ")}, err)
	}
	return errors.Join(err, m.reconcileSession(ctx, rec))
}

// reconcileSession adopts a living session, and clears the remains of an ended one.
func (m *Manager) reconcileSession(ctx context.Context, rec subject) error {
	if s := m.chats.session(rec.ID); s != nil && s.Init.Alive() {
		m.starter.Refresh(s.Session)
		return errors.Join(m.dirs.MakeInstanceDirs(rec.Record), m.checkKept(ctx, rec, s),
			m.mendLimits(ctx, rec, s))
	}
	if !m.hasTraces(rec.ID) {
		return nil
	}
	if m.chats.session(rec.ID) == nil {
		err := m.adopt(rec)
		if err == nil || errors.Is(err, session.ErrUnverified) {
			return err // it lives on, and the next reconcile looks again
		}
		m.log.Warn("ending a session that cannot be adopted", "chat", rec.ID, "why", err)
	}
	return m.awakeSteps().backwards(ctx, m.log, "clear", rec)
}

func (ss *sessions) hasTraces(id chat.ID) bool {
	if _, err := os.Lstat(ss.dirs.sessionDir(id, 0).Path()); err == nil {
		return true
	}
	_, err := ss.groups.Members(id)
	return !errors.Is(err, chat.ErrNotFound)
}

// clearOrphans ends sessions that belong to no chat, which no caller could ever end. With
// systemd an operator can end them, and quarantine has frozen them.
func (m *Manager) clearOrphans(ctx context.Context) error {
	ids, err := m.groups.orphans()
	if err != nil {
		return err
	}
	dirs, err := m.dirs.sessionDirs()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(append(ids, dirs...)))) {
		if m.chats.hasChat(id) || m.archive.IsBeside(id) {
			continue
		}
		m.log.Warn("ending a session without a chat", "chat", id)
		errs = append(errs, m.clearOrphan(ctx, id))
	}
	return errors.Join(errs...)
}

func (m *Manager) clearOrphan(ctx context.Context, id chat.ID) error {
	unlock, err := m.chats.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if m.chats.hasChat(id) {
		return nil // created meanwhile
	}
	return m.awakeSteps().backwards(ctx, m.log, "clear", subject{Record: state.Record{ID: id}})
}

// reportStrays names homes, tmp trees and accounts that belong to no chat. An operator decides.
func (m *Manager) reportStrays() error {
	strays, err := m.dirs.Strays(func(id chat.ID) bool { return id == probeID || m.chats.hasChat(id) })
	if err != nil {
		return err
	}
	accounts, err := m.dirs.userdb.Recorded()
	if err != nil {
		return err
	}
	for uid, path := range accounts {
		_, err := m.store.GetUID(uid)
		if m.opt.UIDs.Contains(uid) && uid != m.dirs.probeUID && errors.Is(err, chat.ErrNotFound) {
			strays = append(strays, path)
		}
	}
	if len(strays) == 0 {
		return nil
	}
	slices.Sort(strays)
	shown := strings.Join(strays[:min(len(strays), 20)], ", ")
	return fmt.Errorf("%d leftovers belong to no chat; inspect and remove them by hand: %s",
		len(strays), shown)
}

// quarantine freezes and reports the units of the slice that belong to no chat.
func (m *Manager) quarantine(ctx context.Context) error {
	known := func(id chat.ID) bool {
		return id == probeID || m.chats.hasChat(id) || m.archive.IsBeside(id)
	}
	names, err := m.groups.Quarantine(ctx, known)
	if len(names) == 0 {
		return err
	}
	return errors.Join(err, fmt.Errorf("units in the chats' slice belong to no chat and are frozen: "+
		"inspect them with systemctl status, then systemctl thaw or stop: %v", names))
}

// prepareHost makes the root-owned parents. Most have mode 0711: a chat may pass through to its
// own files, and cannot list the parent.
func (m *Manager) prepareHost(context.Context) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{m.dirs.sessions, 0o711}, {m.dirs.probe, 0o711}, {filepath.Join(m.dirs.probe, "tmp"),
			m.dirs.tmpMode()}, {filepath.Join(m.dirs.probe, "vartmp"), m.dirs.tmpMode()},
		{m.dirs.runs, 0o700}, {m.dirs.Homes, 0o711}, {m.dirs.Snapshots, 0o711},
		{m.opt.Private, 0o711}, {m.dirs.Tmp, m.dirs.tmpMode()},
		{m.dirs.VarTmp, m.dirs.tmpMode()}, {m.dirs.commands, 0o755}, {m.dirs.logs, 0o700},
		{filepath.Dir(m.dirs.shim), 0o755},
		{m.dirs.stage, 0o700}, {filepath.Join(m.dirs.stage, "empty"), 0o755}, {m.dirs.empty, 0o755},
	} {
		if err := safefs.MakeRoot(d.path, d.mode); err != nil {
			return err
		}
	}
	return errors.Join(m.policy.MakeMasks(), m.gateway.Prepare(), sys.BecomeSubreaper(),
		m.installPrograms(), m.mounts.check())
}

func (m *Manager) reconcileLoop(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(m.opt.Every, time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.Reconcile(ctx)
		case <-m.starts.Again:
			m.trail.Report(aboutWalls, m.probeUnknown(ctx))
		}
	}
}
