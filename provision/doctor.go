package provision

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/unshare"
)

// Host describes the layers in force on this host. It tries every wall again,
// about a second, except during chatd's start, which tries them anyway.
func (m *Manager) Host(ctx context.Context) (chat.Host, error) {
	if m.layers.Settled() {
		if err := m.probe(ctx); err != nil {
			return chat.Host{}, err
		}
	}
	h := m.describe()
	h.Shares, h.Broken = m.shares.Uses(), m.broken(ctx)
	open := append(m.openings(), m.policy.Findings(ctx)...)
	open = append(open, m.shares.Findings(h.Shares)...)
	m.mu.Lock()
	defer m.mu.Unlock()
	h.Chats, h.Awake = m.store.Len(), len(m.sessions)
	for about, what := range m.findings {
		h.Findings = append(h.Findings, about+": "+what)
	}
	awake := max(h.Awake, m.opt.MaxAwake)
	h.Findings = append(h.Findings, layers.TerminalFinding("/proc/sys", awake, unshare.MaxTerminals)...)
	h.Findings = append(h.Findings, layers.SysctlFindings("/proc/sys")...)
	h.Findings = append(h.Findings, m.addRoom(h.Layers)...)
	h.Findings = append(h.Findings, open...)
	slices.Sort(h.Findings)
	return h, nil
}

func (m *Manager) describe() chat.Host {
	h := chat.Host{
		Kernel: sys.KernelRelease(), Backend: m.backend(), Version: m.opt.Version,
		Layers: m.layers.Host(), Missing: m.layers.Missing(), Allowed: m.opt.AllowMissing, Broken: []string{}, Findings: []string{}, Shares: []chat.ShareUse{},
	}
	h.Findings = append(h.Findings, cgroup.OOMLogFinding(cgroup.OOMDumpTasks)...)
	if h.Allowed == nil {
		h.Allowed = []chat.LayerName{}
	}
	return h
}

// Doctor tries every wall of a host where no daemon answers, and removes all that
// it made. It applies packet rules to try them, so its caller must have put it into
// a network namespace of its own.
func Doctor(ctx context.Context, opt Options) (host chat.Host, err error) {
	younger := peekYounger(opt)
	if private := cmp.Or(opt.Private, opt.State); isDir(private) {
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
	m := newManager(opt)
	defer func() { err = errors.Join(err, m.removeGroups()) }()
	for _, step := range []func(context.Context) error{
		m.checkOptions, m.makeState, m.openGroups, m.prepareHost, m.tryWalls, m.openProber, m.probe,
	} {
		if err := step(ctx); err != nil {
			return host, err
		}
	}
	host = m.describe()
	host.Findings = append(layers.SysctlFindings("/proc/sys"), m.openings()...)
	host.Findings = append(host.Findings, m.addRoom(host.Layers)...)
	host.Findings = append(host.Findings, m.secretFindings()...)
	if younger != nil {
		host.Broken = append(host.Broken, younger.Error())
	}
	if names := m.policy.EnforcedProfiles(); len(names) > 0 {
		host.Findings = append(host.Findings, "no daemon answers: whether the file rules of "+strings.Join(names, ", ")+" can be kept was not tried")
	}
	host.Findings = append(host.Findings, "no daemon answers: the walls were tried without one, and the packet rules in a network namespace of their own")
	return host, nil
}

// removeGroups removes the base cgroup of a try, if it was made.
func (m *Manager) removeGroups() error {
	if m.groups == nil {
		return nil
	}
	return errors.Join(m.groups.RemoveBase(), m.groups.Close())
}

// withoutRoom describes a host without room to try any layer.
func withoutRoom(opt Options, err error) chat.Host {
	m := newManager(opt)
	m.layers.Put(layers.Untried(err))
	return m.describe()
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// tryWalls applies the packet rules that allow nothing.
func (m *Manager) tryWalls(ctx context.Context) error {
	if err := m.openTable(ctx); err != nil || m.table == nil {
		return err
	}
	return m.table.Apply(ctx, nil)
}

func (m *Manager) makeState(context.Context) error {
	return errors.Join(safefs.MakeRoot(m.opt.State, 0o711), safefs.MakeRoot(m.opt.Run, 0o755))
}

func (m *Manager) openTable(context.Context) error {
	table, err := netpolicy.Open(netpolicy.Options{Range: netpolicy.Range(m.opt.UIDs), ProbeUID: m.probeUID()})
	if errors.Is(err, chat.ErrUnsupported) {
		m.noTable = err
		m.layers.Excuse(chat.LayerEgress)
		return nil
	}
	m.table = table
	return err
}
