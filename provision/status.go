package provision

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// maxFailures is how many failed acts are remembered for Status; the audit log has all.
const maxFailures = 10

// Status is the daemon at a glance. It answers from memory, also while walls are tried.
func (m *Manager) Status(context.Context) (chat.Status, error) {
	st := chat.Status{
		Version: m.opt.Version, Since: m.since, Chats: m.store.Len(), AtWork: m.working(),
		Ready:  m.layers.Fit() && m.reconciled.Load() && m.hasRoom(),
		Layers: []chat.Layer{}, Bounds: []chat.Bound{}, Disks: m.disks(), Findings: []string{},
	}
	for _, l := range m.layers.Host() {
		if l.State != chat.LayerOn {
			st.Layers = append(st.Layers, l)
		}
	}
	st.Findings = append(st.Findings, m.openings()...)
	st.Shares = slices.DeleteFunc(m.shares.Uses(), func(u chat.ShareUse) bool { return !u.HalfSpent() })
	promised := m.shares.Promised()
	m.mu.Lock()
	defer m.mu.Unlock()
	st.Awake = len(m.sessions)
	st.Asleep = st.Chats - st.Awake
	if max := m.opt.MaxAwake; max > 0 && 2*st.Awake >= max {
		st.Bounds = append(st.Bounds, chat.Bound{Name: "max_awake", Used: uint64(st.Awake), Max: uint64(max)})
	}
	if max := m.opt.MaxAwakeMemory; max > 0 && 2*promised >= max {
		st.Bounds = append(st.Bounds, chat.Bound{Name: "max_awake_memory", Used: promised, Max: max})
	}
	for about, what := range m.findings {
		st.Findings = append(st.Findings, about+": "+what)
	}
	slices.Sort(st.Findings)
	st.Failures = slices.Clone(m.failures)
	slices.Reverse(st.Failures)
	return st, nil
}

// hasRoom reports whether an act can begin, and records or clears a finding about it.
func (m *Manager) hasRoom() bool {
	err := m.store.Room()
	m.report("the state directory", err)
	return err == nil
}

// working counts the awake chats that do something.
func (m *Manager) working() (n int) {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.sessions))
	m.mu.Unlock()
	for _, id := range ids {
		if m.atWork(id) {
			n++
		}
	}
	return n
}

// disks are the file systems that chatd writes to, each once.
func (m *Manager) disks() []chat.Disk {
	disks := []chat.Disk{}
	var seen []uint64
	for _, d := range []chat.Disk{{For: "state", Path: m.opt.State}, {For: "homes", Path: m.opt.Homes}, {For: "accounts", Path: m.opt.Userdb}, {For: "run", Path: m.opt.Run}} {
		var st unix.Stat_t
		var fs unix.Statfs_t
		if unix.Stat(d.Path, &st) != nil || unix.Statfs(d.Path, &fs) != nil || slices.Contains(seen, st.Dev) {
			continue
		}
		seen = append(seen, st.Dev)
		size := uint64(fs.Bsize)
		d.Free, d.Size, d.FreeInodes, d.Inodes = fs.Bavail*size, fs.Blocks*size, fs.Ffree, fs.Files
		d.ReadOnly = fs.Flags&unix.ST_RDONLY != 0
		disks = append(disks, d)
	}
	return disks
}

// remember keeps an act that failed for Status.
func (m *Manager) remember(f chat.Failure) {
	f.At = time.Now().UTC()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append(m.failures, f)
	if over := len(m.failures) - maxFailures; over > 0 {
		m.failures = slices.Delete(m.failures, 0, over)
	}
}
