package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/unshare"
	"golang.org/x/sys/unix"
)

// Status is the daemon at a glance. It answers from memory, also while walls are tried.
func (m *Manager) Status(context.Context) (chat.Status, error) {
	st := chat.Status{
		Version: m.opt.Version, Since: m.since, Chats: m.store.Len(),
		Ready:  m.layers.Fit() && m.reconciled.Load() && m.trail.HasRoom(),
		Layers: []chat.Layer{}, Bounds: []chat.Bound{}, Disks: m.disks(), Findings: []string{},
	}
	for _, l := range m.layers.Host() {
		if l.State != chat.LayerOn {
			st.Layers = append(st.Layers, l)
		}
	}
	st.Findings = append(st.Findings, m.openings()...)
	st.Shares = slices.DeleteFunc(m.shares.Uses(), func(u chat.ShareUse) bool { return !u.HalfSpent() })
	for _, s := range m.chats.allSessions() {
		st.Awake++
		if m.atWork(s.Chat) {
			st.AtWork++
		}
	}
	st.Asleep = st.Chats - st.Awake
	for _, b := range []chat.Bound{
		{Name: "max_awake", Used: uint64(st.Awake), Max: uint64(m.opt.MaxAwake)},
		{Name: "max_awake_memory", Used: m.shares.Promised(), Max: m.opt.MaxAwakeMemory},
	} {
		if b.Max > 0 && 2*b.Used >= b.Max {
			st.Bounds = append(st.Bounds, b)
		}
	}
	st.Findings = append(st.Findings, m.trail.Findings()...)
	slices.Sort(st.Findings)
	st.Failures = m.trail.Failures()
	return st, nil
}

// disks are the file systems that chatd writes to, each once.
func (m *Manager) disks() []chat.Disk {
	disks := []chat.Disk{}
	var seen []uint64
	for _, d := range []chat.Disk{{For: "state", Path: m.opt.State}, {For: "homes", Path: m.opt.Homes},
		{For: "accounts", Path: m.opt.Userdb}, {For: "run", Path: m.opt.Run}} {
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

// openings returns a sentence for each thing that the config leaves open and a reader might take
// for closed: a guard that refuses nothing, a PATH with every program, and limits that the host does
// not keep, and file rules that it keeps with less.
func (m *Manager) openings() []string {
	var open []string
	for _, name := range slices.Sorted(maps.Keys(m.opt.Profiles)) {
		p := m.policy.Profile(name)
		if !p.Guard.On() {
			open = append(open,
				fmt.Sprintf("profile %s: the guard is off: no command is refused before it runs", name))
		}
		if slices.Contains(p.Commands, "*") {
			open = append(open,
				fmt.Sprintf(`profile %s: commands is "*": every program of the host is in the PATH of its chats`, name))
		}
		if m.groups.groups == nil {
			continue // no backend was opened
		}
		for _, what := range m.groups.Unkept(p.Limits) {
			open = append(open, fmt.Sprintf("profile %s: %s", name, what))
		}
	}
	return append(open, m.policy.Unwatched(m.opt.Homes, m.opt.State)...)
}

// sayOpenings writes them to the log, once at each start and reload.
func (m *Manager) sayOpenings() {
	for _, what := range m.openings() {
		m.log.Warn("the config leaves something open", "what", what)
	}
}

// Alive counts the chats, and those awake, under the locks that every caller needs. If ctx ends
// before it has the locks, it returns an error: the manager hangs.
func (m *Manager) Alive(ctx context.Context) (chats, awake int, err error) {
	got := make(chan [2]int, 1)
	go func() {
		unlock, err := m.chats.locks.Lock(ctx, "")
		if err != nil {
			return
		}
		unlock()
		got <- [2]int{m.store.Len(), len(m.chats.allSessions())}
	}()
	select {
	case n := <-got:
		return n[0], n[1], nil
	case <-ctx.Done():
		return 0, 0, fmt.Errorf("cannot count the chats: %w", context.Cause(ctx))
	}
}

// Host describes the layers in force on this host. It tries every wall again,
// about a second, except during chatd's start, which tries them anyway.
func (m *Manager) Host(ctx context.Context) (chat.Host, error) {
	if m.layers.Tried() {
		if err := m.probe(ctx); err != nil {
			return chat.Host{}, err
		}
	}
	h := m.describe()
	// Although every layer is in force: file rules of a chat without an enforcer.
	for _, err := range []error{m.raiseEnforcer(ctx), m.store.Room()} {
		if err != nil {
			h.Broken = append(h.Broken, err.Error())
		}
	}
	h.Shares = m.shares.Uses()
	h.Chats, h.Awake = m.store.Len(), len(m.chats.allSessions())
	terminals := layers.TerminalFinding("/proc/sys", max(h.Awake, m.opt.MaxAwake), unshare.MaxTerminals)
	h.Findings = slices.Concat(h.Findings, m.trail.Findings(), terminals, layers.SysctlFindings("/proc/sys"),
		m.addRoom(h.Layers), m.openings(), m.policy.Findings(ctx), m.shares.Findings(h.Shares))
	slices.Sort(h.Findings)
	return h, nil
}

func (m *Manager) describe() chat.Host {
	return chat.Host{
		Kernel: sys.KernelRelease(), Backend: m.groups.words(), Version: m.opt.Version,
		Layers: m.layers.Host(), Missing: m.layers.Missing(), Broken: []string{},
		Allowed: append([]chat.LayerName{}, m.opt.AllowMissing...), Shares: []chat.ShareUse{},
		Findings: append([]string{}, cgroup.OOMLogFinding(cgroup.OOMDumpTasks)...),
	}
}

// Doctor tries every wall of a host where no daemon answers, and removes all that
// it made. It applies packet rules to try them, so its caller must have put it into
// a network namespace of its own.
func Doctor(ctx context.Context, opt Options) (host chat.Host, err error) {
	younger := peekYounger(opt)
	private := cmp.Or(opt.Private, opt.State)
	if fi, err := os.Lstat(private); err == nil && fi.IsDir() {
		opt.Private = private // pam_namespace's directories do not move with State
	}
	for _, place := range []*string{&opt.State, &opt.Run, &opt.Homes} {
		dir, derr := hostprobe.MakeDir(*place)
		if layers.NoRoom(derr) {
			return withoutRoom(opt, derr), nil
		}
		if derr != nil {
			return host, derr
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		*place = filepath.Join(dir, filepath.Base(*place))
	}
	opt.Cgroup += "-doctor"
	if err := opt.prepare(); err != nil {
		return host, err
	}
	m := newManager(opt, nil)
	defer func() { err = errors.Join(err, m.groups.removeBase()) }()
	openGroups := func(ctx context.Context) error { return m.groups.open(ctx, opt) }
	err = inOrder(ctx, openGroups, m.prepareHost, m.packets.ApplyNone, m.openProber, m.probe)
	if err != nil {
		return host, err
	}
	host = m.describe()
	host.Findings = slices.Concat(layers.SysctlFindings("/proc/sys"), m.openings(), m.addRoom(host.Layers),
		m.secrets.findings())
	if younger != nil {
		host.Broken = append(host.Broken, younger.Error())
	}
	if names := m.policy.EnforcedProfiles(); len(names) > 0 {
		host.Findings = append(host.Findings,
			"no daemon answers: whether the file rules of "+strings.Join(names,
				", ")+" can be kept was not tried")
	}
	host.Findings = append(host.Findings,
		"no daemon answers: the walls were tried without one, and the packet rules in a network namespace of their own")
	return host, nil
}

// withoutRoom describes a host without room to try any layer.
func withoutRoom(opt Options, err error) chat.Host {
	m := newManager(opt, nil)
	m.layers.Put(layers.Untried(err))
	return m.describe()
}

// addRoom adds to the layer disk what is left for chatd itself when chats fill their file systems,
// and returns the findings where nothing is.
func (m *Manager) addRoom(all []chat.Layer) []string {
	own := []string{m.opt.State, m.opt.Run}
	if m.opt.Archives != nil {
		own = append(own, m.opt.Archives.Dir)
	}
	words, findings := m.disk.diskQuotas.Room(own...)
	for i := range all {
		if l := &all[i]; l.Name == chat.LayerDisk && words != "" {
			l.Probe += "; " + words
		}
	}
	return findings
}

// ReportHung is told of a process of chatd's that did not answer, and nil once another one does. It
// keeps what was wrong among the failures, and as a finding until then.
func (m *Manager) ReportHung(who string, err error) {
	if err != nil {
		m.trail.Remember(chat.Failure{Action: who, By: "chatd", Error: err.Error()})
	}
	m.trail.Report("the "+who, err)
}

// BoundFront moves the front, a child of this process, to a cgroup of its own with a bound on
// memory and tasks.
func (m *Manager) BoundFront(pid int) error { return m.groups.Bound(cgroup.Front, pid) }
