package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
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
	m.report("the packet rules", m.mendWall(ctx))
	m.reconcile(ctx, func(string) {})
}

// firstReconcile is Reconcile after the first probe, which has just compared the packet rules.
func (m *Manager) firstReconcile(ctx context.Context) {
	if !m.layers.Stands(chat.LayerEgress) {
		m.report("the packet rules", m.mendWall(ctx))
	}
	m.reconcile(ctx, m.opt.Progress)
}

func (m *Manager) reconcile(ctx context.Context, progress func(string)) {
	m.report(aboutWalls, m.probeUnknown(ctx))
	m.enableQuotas(ctx)
	m.report("the audit log and records", m.store.Behind())
	_ = m.hasRoom() // a finding
	all, until := m.store.All(), time.Now().Add(reapTimeout)
	for i, rec := range all {
		if ctx.Err() != nil {
			return
		}
		if m.atWork(rec.ID) {
			m.touch(rec) // so that a crash loses a minute of it at most
		}
		m.report("chat "+string(rec.ID), m.reconcileChat(ctx, rec.ID, until))
		progress(fmt.Sprintf("looked after %d of %d chats", i+1, len(all)))
	}
	m.report("units without a chat", m.quarantine(ctx))
	m.report("sessions without a chat", m.clearOrphans(ctx))
	m.report("things without a chat", m.reportStrays())
}

// report sets the finding about one subject, or clears it where err is nil.
func (m *Manager) report(about string, err error) {
	if err == nil {
		m.clearFinding(about)
		return
	}
	m.setFinding(about, err)
}

func (m *Manager) reconcileChat(ctx context.Context, id chat.ID, until time.Time) error {
	unlock, free := m.locks.tryLock(id)
	if !free {
		return nil // the lock's holder changes the chat now; the next reconcile checks it
	}
	defer func() { unlock() }()
	rec, err := m.store.Get(id)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err = errors.Join(err, m.endSnapshot(id)); err != nil {
		return err
	}
	switch rec.Phase {
	case chat.Creating:
		if rec.Unarchives != "" {
			return m.giveUpUnarchive(ctx, rec)
		}
		if rec, err = m.createLocked(ctx, id); err != nil {
			return err
		}
		return m.reconcileSession(ctx, rec)
	case chat.Reaping:
		give := unlock
		unlock = func() {} // the reap releases the lock
		return m.reapBehind(rec, until, give)
	}
	mended, err := m.mend(ctx, asleepSteps(), rec)
	if len(mended) > 0 {
		m.log.Warn("mended a chat", "chat", id, "what", mended)
		err = m.auditOutcome(ctx, rec, "mend", map[string]string{"what": strings.Join(mended, "; ")}, err)
	}
	return errors.Join(err, m.reconcileSession(ctx, rec))
}

// reconcileSession adopts a living session, and clears the remains of an ended one.
func (m *Manager) reconcileSession(ctx context.Context, rec state.Record) error {
	if s := m.session(rec.ID); s != nil && s.Init.Alive() {
		m.starter.Refresh(s.Session)
		return errors.Join(m.makeInstanceDirs(rec), m.checkKept(ctx, rec, s),
			m.mendLimits(ctx, rec, s))
	}
	if !m.hasSessionTraces(rec.ID) {
		return nil
	}
	if m.session(rec.ID) == nil {
		err := m.adopt(rec)
		if err == nil {
			m.log.Info("adopted a session", "chat", rec.ID)
			return nil
		}
		if errors.Is(err, session.ErrUnverified) {
			return err // it lives on, and the next reconcile looks again
		}
		m.log.Warn("ending a session that cannot be adopted", "chat", rec.ID, "why", err)
	}
	return m.backwards(ctx, "clear", awakeSteps(), rec)
}

func (m *Manager) hasSessionTraces(id chat.ID) bool {
	if _, err := os.Lstat(m.sessionDir(id, 0).Path()); err == nil {
		return true
	}
	_, err := m.groups.Members(id)
	return !errors.Is(err, chat.ErrNotFound)
}

// clearOrphans ends sessions that belong to no chat, which no caller could ever end. With
// systemd an operator can end them, and quarantine has frozen them.
func (m *Manager) clearOrphans(ctx context.Context) error {
	ids, err := m.orphanGroups()
	if err != nil {
		return err
	}
	dirs, err := m.sessionDirs()
	if err != nil {
		return err
	}
	ids = append(ids, dirs...)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var errs []error
	for _, id := range ids {
		if m.hasChat(id) || m.archive.isBeside(id) {
			continue
		}
		m.log.Warn("ending a session without a chat", "chat", id)
		errs = append(errs, m.clearOrphan(ctx, id))
	}
	return errors.Join(errs...)
}

// sessionDirs lists the chats that have a session directory: they have, or had, a session.
func (m *Manager) sessionDirs() ([]chat.ID, error) {
	names, err := os.ReadDir(m.paths.sessions)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", m.paths.sessions, err)
	}
	var ids []chat.ID
	for _, n := range names {
		if id, err := chat.ParseID(n.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// orphanGroups lists the cgroups that may be cleared: all of them or, where the units are
// systemd's, only the cgroup of a probe that a crash left.
func (m *Manager) orphanGroups() ([]chat.ID, error) {
	ids, err := m.groups.IDs()
	if !m.units {
		return ids, err
	}
	return slices.DeleteFunc(ids, func(id chat.ID) bool { return id != probeID }), err
}

func (m *Manager) clearOrphan(ctx context.Context, id chat.ID) error {
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if m.hasChat(id) {
		return nil // created meanwhile
	}
	return m.backwards(ctx, "clear", awakeSteps(), state.Record{ID: id})
}

// reportStrays names homes, tmp trees and accounts that belong to no chat. It does not remove
// them: after a loss of the state directory they may be the only copy of somebody's work. An
// operator decides.
func (m *Manager) reportStrays() error {
	var strays []string
	for _, dir := range m.paths.trees() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", dir, err)
		}
		for _, e := range entries {
			name := strings.TrimPrefix(e.Name(), safefs.AsideName(""))
			if dir == m.paths.tmp || dir == m.paths.varTmp {
				name = strings.TrimPrefix(name, chat.UserPrefix)
			}
			own := name == string(probeID) || name == filepath.Base(m.paths.snapshots)
			if !own && !m.hasChat(chat.ID(name)) {
				strays = append(strays, filepath.Join(dir, e.Name()))
			}
		}
	}
	accounts, err := m.strayAccounts()
	if err != nil {
		return err
	}
	if strays = append(strays, accounts...); len(strays) == 0 {
		return nil
	}
	shown := strays[:min(len(strays), 20)]
	return fmt.Errorf("%d leftovers belong to no chat; inspect and remove them by hand: %s", len(strays), strings.Join(shown, ", "))
}

// strayAccounts lists the user records in chatd's uid range that belong to no chat.
func (m *Manager) strayAccounts() ([]string, error) {
	records, err := m.userdb.Recorded()
	if err != nil {
		return nil, err
	}
	var strays []string
	for uid, path := range records {
		if !m.opt.UIDs.Contains(uid) || uid == m.probeUID() {
			continue
		}
		if _, err := m.store.GetUID(uid); errors.Is(err, chat.ErrNotFound) {
			strays = append(strays, path)
		}
	}
	slices.Sort(strays)
	return strays, nil
}
