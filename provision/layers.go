package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
	"github.com/chatd/chatd/unshare"
)

// require refuses to serve on a host that lacks a wall, unless it was excused.
func (m *Manager) require(context.Context) error {
	missing := m.missing()
	if len(missing) == 0 {
		return nil
	}
	var lines []string
	for _, l := range m.hostLayers() {
		if slices.Contains(missing, l.Name) {
			lines = append(lines, fmt.Sprintf("\n  %s: %s\n    fix: %s", l.Name, l.Probe, l.Fix))
		}
	}
	return fmt.Errorf("cannot serve: %d required layers are missing (--allow-missing=NAME excuses one):%s\n%w",
		len(missing), strings.Join(lines, ""), chat.ErrUnsupported)
}

// missing returns the layers that are off and not excused. An unknown one is not missing.
func (m *Manager) missing() []chat.LayerName {
	missing := []chat.LayerName{}
	for _, l := range m.required(chat.LayerOff) {
		missing = append(missing, l.Name)
	}
	return missing
}

// hostLayers returns the results of the last probe, outermost wall first.
func (m *Manager) hostLayers() []chat.Layer {
	m.mu.Lock()
	defer m.mu.Unlock()
	layers := make([]chat.Layer, 0, len(m.layers.layers))
	for _, name := range chat.LayerNames() {
		if l, ok := m.layers.layers[name]; ok {
			layers = append(layers, l)
		}
	}
	return layers
}

// layersOf returns the layers of a chat: the probe's results for this host and
// for its kind of network and, while it is awake, what its session's first process
// read back from the kernel.
func (m *Manager) layersOf(rec state.Record, s *session) []chat.Layer {
	layers := m.hostLayers()
	kind := m.network(m.profile(rec))
	m.mu.Lock()
	network, ok := m.layers.network[kind]
	m.mu.Unlock()
	for i, l := range layers {
		if l.Name == chat.LayerNetwork && ok {
			layers[i] = network
		}
		if s != nil {
			layers[i] = s.correct(layers[i])
		}
		if s != nil && l.Name == chat.LayerView {
			layers[i] = m.rulesIn(layers[i], rec, s)
		}
		if s != nil && l.Name == chat.LayerLandlock && layers[i].State != chat.LayerOff {
			layers[i] = m.rulesInLandlock(layers[i], rec, s)
		}
	}
	return layers
}

// correct replaces the host's answer where the session has its own.
func (s *session) correct(l chat.Layer) chat.Layer {
	r := s.report
	var ok bool
	switch l.Name {
	case chat.LayerLandlock:
		ok = r.Landlock.ABI > 0
	case chat.LayerSeccomp:
		ok = r.Seccomp == 2
	case chat.LayerPrivileges:
		ok = r.NoNewPrivs && r.CapEff|r.CapPrm|r.CapInh|r.CapAmb == 0
	default:
		return l
	}
	if !ok {
		l.State, l.Probe = chat.LayerOff, "the session's own report says so"
	}
	return l
}

// Host describes the layers in force on this host. It tries every wall again,
// about a second, except during chatd's start, which tries them anyway.
func (m *Manager) Host(ctx context.Context) (chat.Host, error) {
	if m.settled.Load() {
		if err := m.probe(ctx); err != nil {
			return chat.Host{}, err
		}
	}
	h := m.describe()
	h.Shares, h.Broken = m.shareUses(), m.broken(ctx)
	terminals, open := m.terminalFinding(), append(m.openings(), m.enforcerFindings(ctx)...)
	m.mu.Lock()
	defer m.mu.Unlock()
	h.Chats, h.Awake = m.store.Len(), len(m.sessions)
	for about, what := range m.findings {
		h.Findings = append(h.Findings, about+": "+what)
	}
	h.Findings = append(append(h.Findings, terminals...), sysctlFindings("/proc/sys")...)
	h.Findings = append(h.Findings, open...)
	h.Findings = append(h.Findings, m.shareFindings(h.Shares)...)
	slices.Sort(h.Findings)
	return h, nil
}

func (m *Manager) describe() chat.Host {
	h := chat.Host{
		Kernel: sys.KernelRelease(), Backend: m.backend(), Version: m.opt.Version,
		Layers: m.hostLayers(), Missing: m.missing(), Allowed: m.opt.AllowMissing, Broken: []string{}, Findings: []string{}, Shares: []chat.ShareUse{},
	}
	h.Findings = append(h.Findings, cgroup.OOMLogFinding(cgroup.OOMDumpTasks)...)
	if h.Allowed == nil {
		h.Allowed = []chat.LayerName{}
	}
	return h
}

// terminalFinding warns if awake chats, at [unshare.MaxTerminals] each, could open more terminals
// than kernel.pty.max has for all. kernel.pty.reserve is for the host's own mount namespace.
func (m *Manager) terminalFinding() []string {
	var most, reserved int
	for name, n := range map[string]*int{"max": &most, "reserve": &reserved} {
		b, err := os.ReadFile("/proc/sys/kernel/pty/" + name)
		if err == nil {
			_, err = fmt.Sscan(string(b), n)
		}
		if err != nil {
			return nil
		}
	}
	m.mu.Lock()
	awake := max(len(m.sessions), m.opt.MaxAwake)
	m.mu.Unlock()
	if want := awake * unshare.MaxTerminals; want > most-reserved {
		return []string{fmt.Sprintf("%d awake chats may open %d terminals each, and this host has %d for all: sysctl -w kernel.pty.max=%d",
			awake, unshare.MaxTerminals, most-reserved, max(want+reserved, 1<<17))}
	}
	return nil
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
		dir, derr := makeProbeDir(*place)
		if noRoom(derr) {
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
	for _, step := range []func(context.Context) error{
		m.checkOptions, m.makeState, m.openGroups, m.prepareHost, m.tryWalls, m.chooseAccount, m.probe,
	} {
		if err := step(ctx); err != nil {
			return host, err
		}
	}
	host = m.describe()
	host.Findings = append(sysctlFindings("/proc/sys"), m.openings()...)
	if younger != nil {
		host.Broken = append(host.Broken, younger.Error())
	}
	if names := m.enforcedProfiles(); len(names) > 0 {
		host.Findings = append(host.Findings, "no daemon answers: whether the file rules of "+strings.Join(names, ", ")+" can be kept was not tried")
	}
	host.Findings = append(host.Findings, "no daemon answers: the walls were tried without one, and the packet rules in a network namespace of their own")
	return host, errors.Join(m.groups.RemoveBase(), m.groups.Close())
}

// withoutRoom describes a host without room to try any layer.
func withoutRoom(opt Options, err error) chat.Host {
	m := newManager(opt)
	for name, l := range m.layers.layers {
		m.layers.layers[name] = failed(l, err, "")
	}
	return m.describe()
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// makeProbeDir makes a directory on the file system where place is or would be:
// programs run from one and not from another (/run is noexec on Debian).
func makeProbeDir(place string) (string, error) {
	parent := filepath.Dir(place)
	for ; parent != "/"; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	dir, err := os.MkdirTemp(parent, "chatd-doctor-")
	if err != nil {
		return "", fmt.Errorf("cannot make a directory to probe in: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(fmt.Errorf("cannot open up %s: %w", dir, err), os.Remove(dir))
	}
	return dir, nil
}

// tryWalls applies the packet rules that allow nothing.
func (m *Manager) tryWalls(ctx context.Context) error {
	if err := m.openTable(ctx); err != nil || m.table == nil {
		return err
	}
	return m.table.Apply(ctx, nil)
}

func (m *Manager) makeState(context.Context) error {
	return errors.Join(trees.MakeRoot(m.opt.State, 0o711), trees.MakeRoot(m.opt.Run, 0o755))
}

func (m *Manager) openTable(context.Context) error {
	table, err := netpolicy.Open(netpolicy.Options{Range: netpolicy.Range(m.opt.UIDs), ProbeUID: m.probeUID()})
	if errors.Is(err, chat.ErrUnsupported) {
		m.noTable = err
		m.excuse(chat.LayerEgress)
		return nil
	}
	m.table = table
	return err
}
