package provision

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// cleanUpFSize is the largest file that a chat may write while it is far over its limit, and nothing
// but chatd's count bounds it: a block. It can remove files, and not write much.
const cleanUpFSize = 4 << 10

// openDisks makes what bounds and counts what chats have on disk.
func (m *Manager) openDisks() {
	m.diskQuotas = diskquota.New(m.paths.trees()...)
	m.diskWatch = diskquota.NewWatch(diskquota.Options{
		Disks: m.diskQuotas, Chats: m.diskChats, Report: m.reportDisk, Over: m.sleepFull,
		Every: m.opt.DiskEvery, Log: m.log,
	})
}

// enableQuotas makes file systems enforce quotas that only count, and audits that: it holds for all
// users there, and somebody may have turned them off. One that cannot is a finding.
func (m *Manager) enableQuotas(ctx context.Context) {
	if m.without(chat.LayerDisk) {
		return
	}
	enabled, err := m.diskQuotas.Enable()
	if len(enabled) > 0 {
		m.log.Warn("turned on user quotas", "dirs", enabled)
		what := map[string]string{"layer": string(chat.LayerDisk),
			"what": "turned on user quotas in " + strings.Join(enabled, ", ")}
		err = m.auditOutcome(ctx, state.Record{}, "mend", what, err)
	}
	m.report("disk quotas", err)
}

// diskLimit is what the chat may have on disk, by its profile.
func (m *Manager) diskLimit(rec state.Record) diskquota.Amount {
	l := m.profile(rec).Limits.DiskLimits
	return diskquota.Amount{Bytes: l.DiskMax, Inodes: l.InodesMax}
}

// createDisk sets the quotas of the chat's uid; also those of a living chat, whose limits changed.
func (m *Manager) createDisk(_ context.Context, rec state.Record) error {
	if m.without(chat.LayerDisk) {
		return nil
	}
	return m.diskQuotas.Set(rec.UID, m.diskLimit(rec))
}

func (m *Manager) driftDisk(_ context.Context, rec state.Record) (string, error) {
	if m.without(chat.LayerDisk) {
		return "", nil
	}
	return m.diskQuotas.Drift(rec.UID, m.diskLimit(rec))
}

// removeDisk clears them: a uid is never used again, and the kernel may forget it.
func (m *Manager) removeDisk(_ context.Context, rec state.Record) error {
	m.diskWatch.Forget(rec.ID)
	return m.diskQuotas.Clear(rec.UID)
}

// diskChat is the chat as package diskquota knows it.
func (m *Manager) diskChat(rec state.Record) diskquota.Chat {
	return diskquota.Chat{
		ID: rec.ID, UID: rec.UID, Limit: m.diskLimit(rec), Awake: m.session(rec.ID) != nil,
		Used: rec.UsedAt,
		Tree: func(dir string) string {
			if dir == m.paths.homes || dir == m.paths.snapshots {
				return filepath.Base(m.home(rec.ID))
			}
			return rec.ID.User()
		},
	}
}

func (m *Manager) diskChats() (chats []diskquota.Chat) {
	for _, rec := range m.store.All() {
		if rec.Phase == chat.Ready {
			chats = append(chats, m.diskChat(rec))
		}
	}
	return chats
}

// diskOf is what the chat has on disk; nil if that is not known.
func (m *Manager) diskOf(rec state.Record) *chat.DiskUsage {
	u, err := m.diskWatch.Of(m.diskChat(rec))
	if err != nil {
		m.log.Debug("cannot look at the disk of a chat", "chat", rec.ID, "error", err)
		return nil
	}
	if !u.Known {
		return nil
	}
	return diskUsage(u)
}

func diskUsage(u diskquota.Use) *chat.DiskUsage {
	d := &chat.DiskUsage{Bytes: u.Held.Bytes, Inodes: u.Held.Inodes, Percent: u.Percent}
	if !u.CountedAt.IsZero() {
		at := u.CountedAt.UTC().Truncate(time.Second)
		d.CountedAt = &at
	}
	return d
}

// reportDisk writes that a chat's disk fills into its terminal's log, chatd's and the audit log.
func (m *Manager) reportDisk(c diskquota.Chat, u diskquota.Use, level int) {
	rec, err := m.store.Get(c.ID)
	if err != nil {
		return // reaped meanwhile
	}
	words := chat.DiskWords(*diskUsage(u), m.profile(rec).Limits.DiskLimits)
	m.log.Warn("a chat fills its disk", "chat", c.ID, "level", level, "why", words)
	err = m.auditEnd(context.Background(), rec, "limit", map[string]string{"why": words}, nil)
	if err != nil {
		m.log.Error("cannot audit what a limit did", "chat", c.ID, "error", err)
	}
	m.sayInLog(c.ID, words)
}

// sleepFull puts a chat to sleep that is far over its limit, which nothing enforces. Its next wake
// is to clean up; see [Manager.processLimits].
func (m *Manager) sleepFull(c diskquota.Chat, why string) {
	ctx, cancel := context.WithTimeout(m.bg, session.StartTimeout)
	defer cancel()
	unlock, err := m.locks.lock(ctx, c.ID)
	if err != nil {
		m.log.Warn("a chat far over its disk_max stays awake", "chat", c.ID, "error", err)
		return
	}
	defer unlock()
	rec, err := m.store.Get(c.ID)
	if err != nil || rec.Phase != chat.Ready || m.session(c.ID) == nil {
		return
	}
	m.log.Warn("putting a chat to sleep", "chat", c.ID, "why", why)
	m.report("chat "+string(c.ID), m.sleepLocked(ctx, rec, why))
}

// processLimits are those of each process of the chat. One that is far over its disk limit, where
// nothing enforces that, can only clean up: it writes no file larger than a block.
func (m *Manager) processLimits(rec state.Record) chat.ProcessLimits {
	l := m.profile(rec).Limits.ProcessLimits
	if m.overDisk(rec) != "" {
		l.FSize = cleanUpFSize
	}
	return l
}

// overDisk says why a chat is far over its limit, which nothing enforces; empty if it is not.
func (m *Manager) overDisk(rec state.Record) string {
	if m.without(chat.LayerDisk) {
		return ""
	}
	return m.diskWatch.Over(rec.ID, m.diskLimit(rec))
}

// sayCleanUp says in the terminal's log why a chat that wakes can write no files.
func (m *Manager) sayCleanUp(rec state.Record) {
	if why := m.overDisk(rec); why != "" {
		m.sayInLog(rec.ID, "the chat can write no files until it has removed some: "+why)
	}
}

// addRoom adds to the layer disk what is left for chatd itself when chats fill their file systems,
// and returns the findings where nothing is.
func (m *Manager) addRoom(all []chat.Layer) []string {
	own := []string{m.opt.State, m.opt.Run}
	if m.opt.Archives != nil {
		own = append(own, m.opt.Archives.Dir)
	}
	words, findings := m.diskQuotas.Room(own...)
	for i := range all {
		if l := &all[i]; l.Name == chat.LayerDisk && words != "" {
			l.Probe += "; " + words
		}
	}
	return findings
}
