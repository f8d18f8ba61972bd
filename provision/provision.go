package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/state"
)

// Options is everything a [Manager] needs to know; cmd/chatd fills it from
// flags, environment and config. Directories are absolute.
type Options struct {
	// State is chatd's own directory, kept over reboots: records, audit, private /tmp trees.
	State string
	// Run is chatd's own directory that a reboot may empty: sessions.
	Run string
	// Homes is the root-owned parent of the chats' homes.
	Homes string
	// Userdb is where account records go; nss-systemd(8) reads /etc/userdb.
	Userdb string
	// Account is auto, userdb or useradd.
	Account string
	// Shim is the chatd-shim binary to install into sessions.
	Shim string
	// Backend is auto, systemd or cgroupfs; empty is auto.
	Backend string
	// Cgroup is the name of the base cgroup below chatd's own, or of the slice and
	// the units in it; two daemons on one host need two names.
	Cgroup string
	// Private is the parent of the private /tmp and /var/tmp trees, State if it is
	// empty. With systemd it is what /etc/security/namespace.d/chatd.conf names.
	Private string
	// UIDs are the uids chats may get; the last one is kept for probes.
	UIDs state.Range
	// AuditMax is how many bytes the audit log may have before a new one is begun;
	// AuditKeep is how many full ones are kept. Zero means any number, and all.
	AuditMax  int64
	AuditKeep int
	// LandlockABI is the least Landlock ABI that a session may start with.
	LandlockABI int
	// MaxAwake bounds how many chats are awake at once.
	MaxAwake int
	// Profiles are the policies by name; one is named default.
	Profiles map[string]chat.Profile
	// AllowMissing excuses layers that the host lacks.
	AllowMissing []chat.LayerName
	// Without leaves layers out on purpose. Tests use it to see that each wall is
	// needed; no flag or config key reaches it.
	Without []chat.LayerName
	// Unwatched leaves packet rules that somebody changed to the next Reconcile. Tests
	// use it to see what holds meanwhile; no flag or config key reaches it.
	Unwatched bool
	// Every is how often the host is compared with the records; zero means a minute.
	Every time.Duration
	// Version is shown by Host.
	Version string
	Log     *slog.Logger
}

// Manager provisions chats: it owns their records, accounts, homes, walls and
// sessions. Its exported methods are safe for concurrent use and satisfy
// api.Chats; the caller is in the context ([chat.WithCaller]).
type Manager struct {
	opt     Options
	log     *slog.Logger
	store   *state.Store
	groups  groups
	units   bool             // groups are those of systemd
	table   *netpolicy.Table // nil on a host without the programs for it
	noTable error            // why
	userdb  *userdb
	useradd *useradd
	account accountBackend // the one that new accounts get
	paths   paths
	boot    string

	locks keyedLocks

	mu       sync.Mutex
	sessions map[chat.ID]*session
	starting int
	layers   probed
	excused  []chat.LayerName // lacking here, and allowed to
	settled  bool             // set once when Open is done: nothing more is excused
	findings map[string]string

	// wall is held while the rules change, which may wait for the lock of iptables;
	// walled is what they hold for, and is read without it.
	wall   sync.Mutex
	walled atomic.Pointer[[]netpolicy.Policy]

	stop context.CancelFunc
	done sync.WaitGroup
}

// paths are the root-owned directories below which everything of a chat lies.
type paths struct {
	homes, tmp, varTmp, sessions, profiles, shims, shim string
}

// Open takes the state directory for itself, raises the walls, probes them,
// finishes what a crash left, and adopts the sessions that lived on. It refuses
// with [chat.ErrUnsupported] when a required layer is missing, and with
// [chat.ErrBusy] when another daemon holds the state.
func Open(ctx context.Context, opt Options) (*Manager, error) {
	m := newManager(opt)
	for _, step := range []func(context.Context) error{
		m.checkOptions, m.openState, m.openGroups, m.prepareHost, m.raiseWalls, m.chooseAccount, m.probe, m.require, m.recoverAll,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, m.closeState())
		}
	}
	m.settled = true
	bg, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.done.Go(func() { m.reconcileLoop(bg) })
	m.done.Go(func() { m.watchWall(bg) })
	return m, nil
}

func newManager(opt Options) *Manager {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.Private = cmp.Or(opt.Private, opt.State)
	return &Manager{
		opt: opt, log: opt.Log, sessions: map[chat.ID]*session{}, findings: map[string]string{},
		paths: paths{
			homes: opt.Homes, tmp: filepath.Join(opt.Private, "tmp"), varTmp: filepath.Join(opt.Private, "vartmp"),
			sessions: filepath.Join(opt.Run, "sessions"), profiles: filepath.Join(opt.State, "profiles"),
			shims: filepath.Join(opt.State, "shims"), shim: filepath.Join(opt.State, "bin", "chatd-shim"),
		},
	}
}

// Close ends the daemon's part. Sessions and walls stay: a session does not
// depend on chatd, and a wall must not fall because chatd restarts.
func (m *Manager) Close() error {
	m.stop()
	m.done.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, s := range m.sessions {
		errs = append(errs, s.leader.Close())
	}
	return errors.Join(append(errs, m.closeState())...)
}

func (m *Manager) closeState() error {
	var errs []error
	if m.groups != nil {
		errs = append(errs, m.groups.Close())
	}
	if m.store != nil {
		errs = append(errs, m.store.Close())
	}
	return errors.Join(errs...)
}

func (m *Manager) checkOptions(context.Context) error {
	for _, d := range []struct{ key, path string }{
		{"state", m.opt.State}, {"run", m.opt.Run}, {"homes", m.opt.Homes}, {"userdb", m.opt.Userdb},
	} {
		if !filepath.IsAbs(d.path) {
			return fmt.Errorf("cannot use %s directory %q: want an absolute path: %w", d.key, d.path, chat.ErrInvalid)
		}
	}
	for name, p := range m.opt.Profiles {
		if err := p.Validate(); err != nil {
			return err
		}
		if name != p.Name {
			return fmt.Errorf("cannot use profile %q: it calls itself %q: %w", name, p.Name, chat.ErrInvalid)
		}
	}
	if _, ok := m.opt.Profiles[chat.DefaultProfile]; !ok {
		return fmt.Errorf("cannot serve: no profile named %s: %w", chat.DefaultProfile, chat.ErrInvalid)
	}
	return checkUIDRange(m.opt.UIDs)
}

func (m *Manager) openState(ctx context.Context) (err error) {
	if err := m.makeState(ctx); err != nil {
		return err
	}
	m.store, err = state.Open(state.Options{
		Dir: m.opt.State, UIDs: m.opt.UIDs, BlockSize: blockSize(m.opt.UIDs), AuditMax: m.opt.AuditMax, AuditKeep: m.opt.AuditKeep,
	})
	return err
}

// blockSize is 65,536 uids a block; a small range, as in tests, is cut in 16.
func blockSize(r state.Range) uint32 {
	return min(1<<16, max(16, (r.High-r.Low+1)/16))
}

// prepareHost makes the root-owned parents. Most are 0711: a chat may pass
// through to what is its own, and may list nothing.
func (m *Manager) prepareHost(context.Context) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{m.paths.sessions, 0o711}, {m.paths.homes, 0o711}, {m.opt.Private, 0o711}, {m.paths.tmp, m.tmpMode()},
		{m.paths.varTmp, m.tmpMode()}, {m.paths.profiles, 0o755}, {filepath.Dir(m.paths.shim), 0o755},
	} {
		if err := makeRootDir(d.path, d.mode); err != nil {
			return err
		}
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	m.boot = boot
	return errors.Join(becomeSubreaper(), m.installPrograms())
}

// makeRootDir makes dir, owned by root, with exactly mode, and refuses one that
// somebody else owns or that is a link: whoever owns a parent owns what is in it.
//
// A parent that is not there is made 0755: the daemon's umask would close it to
// the chats that have to pass.
func makeRootDir(dir string, mode os.FileMode) error {
	err := os.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeRootDir(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		err = os.Mkdir(dir, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make %s: %w", dir, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if uid, _ := ownerOf(fi); !fi.IsDir() || uid != 0 {
		return fmt.Errorf("cannot use %s: want a directory that root owns, found %s of uid %d", dir, fi.Mode(), uid)
	}
	if fi.Mode().Perm() == mode {
		return nil
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("cannot set the mode of %s: %w", dir, err)
	}
	return nil
}

// without reports whether the layer is left out: by a test, or because this host
// lacks it and config excuses it.
func (m *Manager) without(l chat.LayerName) bool { return slices.Contains(m.leftOut(), l) }

func (m *Manager) leftOut() []chat.LayerName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(slices.Clone(m.opt.Without), m.excused...)
}

// excuse leaves layers out from now on, as far as config allows.
func (m *Manager) excuse(layers ...chat.LayerName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range layers {
		if slices.Contains(m.opt.AllowMissing, l) && !slices.Contains(m.excused, l) {
			m.excused = append(m.excused, l)
		}
	}
}

func (m *Manager) unexcuse(layer chat.LayerName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excused = slices.DeleteFunc(m.excused, func(l chat.LayerName) bool { return l == layer })
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
		}
	}
}
