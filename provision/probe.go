package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/account"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/homedir"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// probeID is the chat that probes act as. It has no record, and no chat gets its
// uid. Reconcile clears its remains after a crash as a session without a chat.
const probeID chat.ID = "0000000000000000"

// probeTimeout bounds one probe of a session.
const probeTimeout = 30 * time.Second

// probed holds the results of the last probe.
type probed struct {
	// layers are the host's walls; network is the wall of each kind of network.
	layers  map[chat.LayerName]chat.Layer
	network map[chat.Network]chat.Layer
}

// probe tries every wall, as the last uid of the range, in a session like any
// other. It takes no answer from config or from a version number.
func (m *Manager) probe(ctx context.Context) error {
	unlock, err := m.locks.lock(ctx, probeID)
	if err != nil {
		return err
	}
	defer unlock()
	p := probed{layers: map[chat.LayerName]chat.Layer{}, network: map[chat.Network]chat.Layer{}}
	// Limits and packet rules are tried beside the sessions: they act in trees of their own, and
	// the sessions send no packet. The sessions share a uid, so they come one after the other.
	var limits, packets []chat.Layer
	var beside sync.WaitGroup
	beside.Go(func() { limits = m.groups.Probe(ctx) })
	beside.Go(func() { packets = m.tableLayers(ctx) })
	p.keep(m.accountLayer(ctx))
	p.keep(m.homeLayer())
	m.tryApart()
	inside := map[chat.Network][]chat.Layer{}
	kinds := []chat.Network{chat.NetworkNone, chat.NetworkShared}
	for _, kind := range kinds {
		inside[kind] = m.sessionLayers(ctx, kind)
	}
	beside.Wait()
	for _, l := range append(limits, packets...) {
		p.keep(l)
	}
	outside := p.layers[chat.LayerNetwork]
	delete(p.layers, chat.LayerNetwork)
	for _, kind := range kinds {
		for _, l := range inside[kind] {
			switch {
			case l.Name != chat.LayerNetwork:
				p.keep(l)
			case kind == chat.NetworkShared:
				p.network[kind] = worse(outside, l)
			default:
				p.network[kind] = l
			}
		}
	}
	p.keep(m.hostNetwork(p.network))
	p.layers[chat.LayerProc] = m.withHostProc(p.layers[chat.LayerProc])
	p.layers[chat.LayerTmp] = m.withPAM(p.layers[chat.LayerTmp])
	if ctx.Err() != nil { // an interrupted probe has no result
		return fmt.Errorf("cannot try the walls: %w", context.Cause(ctx))
	}
	m.mu.Lock()
	m.layers = p
	m.mu.Unlock()
	m.judgeFit()
	return nil
}

// keep stores a result for a layer, if none is stored that is worse.
func (p probed) keep(l chat.Layer) {
	if old, ok := p.layers[l.Name]; ok {
		l = worse(old, l)
	}
	p.layers[l.Name] = l
}

// worse returns the weaker of two results for one layer; of equals the first, with
// both mechanisms named.
func worse(a, b chat.Layer) chat.Layer {
	rank := map[chat.LayerState]int{chat.LayerOff: 0, chat.LayerUnknown: 1, chat.LayerWeaker: 2, chat.LayerOn: 3}
	if rank[b.State] < rank[a.State] {
		a, b = b, a
	}
	if a.State == b.State && b.By != "" && !strings.Contains(a.By, b.By) {
		a.By = strings.TrimPrefix(a.By+", "+b.By, ", ")
		a.Probe = strings.TrimPrefix(a.Probe+"; "+b.Probe, "; ")
	}
	return a
}

// withHostProc adds what holds outside a session. If the host's /proc is mounted with
// hidepid=invisible (proc(5)), a uid without a session sees no other's processes
// either. Layers describe sessions, so this does not change the layer's state.
func (m *Manager) withHostProc(l chat.Layer) chat.Layer {
	if !stands(l) {
		return l
	}
	err := m.seesInit()
	switch {
	case errors.Is(err, unix.ENOENT):
		l.By += ", and hidepid on the host"
		l.Probe += "; outside a session another user's process 1 is hidden"
	case err == nil:
		l.Probe += "; outside a session, on the host, every user sees all processes"
	default:
		l.Probe += "; outside a session: " + err.Error()
	}
	return l
}

// seesInit looks for process 1 as the probe's uid, in the /proc of process 1: a
// hardened unit may have a mount namespace with a /proc of its own.
func (m *Manager) seesInit() error {
	proc, err := unix.Open("/proc/1/root/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the host's /proc: %w", err)
	}
	defer unix.Close(proc)
	return sys.AsUID(m.probeUID(), func() error {
		var st unix.Stat_t
		return unix.Fstatat(proc, "1", &st, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// withPAM names pam_namespace, which mounted the directories. chatd-shim enter checks
// them before a session begins, and starts none without them.
func (m *Manager) withPAM(l chat.Layer) chat.Layer {
	if m.units && stands(l) {
		l.By = "pam_namespace, " + l.By
	}
	return l
}

// stands reports whether the layer is in force, if only in a weaker form.
func stands(l chat.Layer) bool { return l.State == chat.LayerOn || l.State == chat.LayerWeaker }

// hostNetwork returns the worst result of the kinds of network that profiles use.
func (m *Manager) hostNetwork(kinds map[chat.Network]chat.Layer) chat.Layer {
	found := chat.Layer{Name: chat.LayerNetwork, State: chat.LayerOn, At: time.Now()}
	for _, p := range m.opt.Profiles {
		if l, ok := kinds[m.network(p)]; ok {
			found = worse(found, l)
		}
	}
	return found
}

// tableLayers returns the results for the layers of package netpolicy.
func (m *Manager) tableLayers(ctx context.Context) []chat.Layer {
	if m.table != nil {
		return m.table.Probe(ctx)
	}
	var layers []chat.Layer
	for _, name := range []chat.LayerName{chat.LayerEgress, chat.LayerNetwork} {
		layers = append(layers, chat.Layer{Name: name, State: chat.LayerOff, At: time.Now(),
			Probe: m.noTable.Error(), Fix: "apt-get install iptables nftables"})
	}
	return layers
}

func (m *Manager) accountLayer(ctx context.Context) chat.Layer {
	l := chat.Layer{Name: chat.LayerAccount, State: chat.LayerOn, By: m.account.Name(), At: time.Now(),
		Probe: "an account was made, found by name and number through NSS, and removed"}
	var err error
	if !m.resolved {
		err = m.probeAccount(ctx)
	}
	m.resolved = false
	if noRoom(err) && m.tryOn(func(rec state.Record) error { return account.Verify(ctx, m.accountOf(rec)) }) {
		l.Probe = "there is no room for another account; one that is there was found by name and number through NSS"
		err = nil
	}
	if m.without(chat.LayerAccount) {
		err = errors.New("left out for a test")
	}
	if err != nil {
		return failed(l, err, "apt-get install libnss-systemd, and see that passwd and group in /etc/nsswitch.conf name systemd")
	}
	return l
}

// tryOn reports whether try succeeds on one of the first eight chats. Probes use it without room
// to make a file of their own; several are tried, because one may be half made.
func (m *Manager) tryOn(try func(state.Record) error) bool {
	if m.store == nil {
		return false
	}
	for i, rec := range m.store.All() {
		if i == 8 {
			break
		}
		if rec.Phase == chat.Ready && try(rec) == nil {
			return true
		}
	}
	return false
}

// homeLayer makes a home for one uid, and tries as another to enter it and to
// list the homes.
func (m *Manager) homeLayer() chat.Layer {
	l := chat.Layer{Name: chat.LayerHome, State: chat.LayerOn, By: "mode 0700 below a root-owned 0711 directory", At: time.Now(),
		Probe: "another uid could neither list a home, nor enter it, nor list the homes"}
	err := m.tryHome()
	if noRoom(err) && m.tryOn(func(rec state.Record) error { return m.keepsOut(m.home(rec.ID)) }) {
		l.Probe = "there is no room for another home; another uid could neither list one that is there, nor enter it, nor list the homes"
		return l
	}
	if err != nil {
		return failed(l, err, "homes must lie on a file system with owners and modes")
	}
	return l
}

// probeHome is the name of the home that tryHome makes.
const probeHome = "probe-home"

func (m *Manager) tryHome() error {
	err := homedir.MakeOwned(m.paths.homes, probeHome, m.probeUID()-1, m.homeMode(), "")
	if err == nil {
		err = m.keepsOut(filepath.Join(m.paths.homes, probeHome))
	}
	return errors.Join(err, trees.Remove(m.paths.homes, probeHome))
}

// keepsOut tries to open the home of another uid, to list the homes and to make one. A
// missing home is an error, because it keeps nobody out.
func (m *Manager) keepsOut(home string) error {
	if fi, err := os.Lstat(home); err != nil || !fi.IsDir() {
		return fmt.Errorf("cannot try to enter %s: want a directory: %w", home, errors.Join(err, chat.ErrNotFound))
	}
	return sys.AsUID(m.probeUID(), func() error {
		for _, dir := range []string{home, home + "/.", m.paths.homes} {
			if fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				return errors.Join(fmt.Errorf("cannot keep uid %d out: it opened %s", m.probeUID(), dir), unix.Close(fd))
			}
		}
		if err := unix.Mkdir(m.paths.homes+"/probe-made", 0o700); err == nil {
			return errors.Join(fmt.Errorf("cannot keep uid %d out: it made a directory in %s", m.probeUID(), m.paths.homes), os.Remove(m.paths.homes+"/probe-made"))
		}
		return nil
	})
}

// sessionLayers starts a session of one kind of network that does nothing but
// try its walls from inside.
func (m *Manager) sessionLayers(ctx context.Context, kind chat.Network) []chat.Layer {
	layers, err := m.tryProbeSession(ctx, kind)
	for _, lacking := range m.excusable() {
		if err == nil || cannotTell(err) {
			break
		}
		// Perhaps the host lacks only this layer, which config excuses.
		m.excuse(lacking)
		if layers, err = m.tryProbeSession(ctx, kind); err != nil {
			m.unexcuse(lacking)
		}
	}
	if err == nil {
		return layers
	}
	layers = nil
	for _, name := range []chat.LayerName{chat.LayerTmp, chat.LayerProc, chat.LayerView, chat.LayerLandlock,
		chat.LayerSeccomp, chat.LayerPrivileges, chat.LayerPath, chat.LayerNetwork, chat.LayerSockets} {
		layers = append(layers, failed(chat.Layer{Name: name, At: time.Now()}, fmt.Errorf("no session came up: %w", err), fixSession()))
	}
	return layers
}
