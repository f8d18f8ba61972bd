package provision

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/netpolicy/traffic"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/console"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/due"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/shares"
	"github.com/chatd/chatd/provision/view"
	"github.com/chatd/chatd/state"
)

// Manager provisions chats: it owns their records, accounts, homes, walls and
// sessions. Its exported methods are safe for concurrent use and satisfy
// verbs.Root; the caller is in the context ([chat.WithCaller]).
type Manager struct {
	opt        Options
	log        *slog.Logger
	store      *state.Store
	groups     groups
	units      bool // groups are those of systemd
	starter    *session.Starter
	later      *session.Later   // what goes on after its caller left
	claim      *os.File         // of the packet rules; may be nil
	table      *netpolicy.Table // nil on a host without the programs for it
	noTable    error            // why table is nil
	userdb     *account.Userdb
	useradd    *account.Useradd
	account    account.Backend // the one that new accounts get
	prober     *hostprobe.Prober
	diskQuotas *diskquota.Disks
	paths      paths
	programs   *session.Programs
	views      *view.Planner
	boot       string

	locks  keyedLocks
	layers *layers.Set // what the last probe found
	clock  *idle.Clock // see keepTime
	// clockSaved is what clockFile has; clockMu guards both.
	clockMu    sync.Mutex
	clockSaved time.Time
	calls      filecall.Calls
	starts     *quota.Limiter
	policy     *policy.InForce
	reaps      chan struct{} // one for each reap that no caller waits for
	logs       *console.Logs

	runs    *background.Runs
	due     *due.Schedules
	gateway *gateway.Gateway
	traffic *traffic.Log

	placeholders secret.Keys
	authority    *gateway.Authority
	secretsMu    sync.Mutex // held while secrets are read and passed on
	secretValues map[string]secret.Value

	archive   archiveKeeper
	archiving *quota.Limiter
	shares    *shares.Shares
	idle      *idle.Watch
	diskWatch *diskquota.Watch
	mu        sync.Mutex
	sessions  map[chat.ID]*liveSession
	findings  map[string]string
	failures  []chat.Failure // the latest ones
	since     time.Time

	// wall is held while the packet rules change, which may wait for the lock of iptables. walled
	// are the policies in force; it is read without wall.
	wall   sync.Mutex
	walled atomic.Pointer[[]netpolicy.Policy]
	doubt  wallDoubt

	reconciled atomic.Bool   // the first reconcile is done
	again      chan struct{} // requests another probe

	bg   context.Context // ends with the Manager
	stop context.CancelFunc
	done sync.WaitGroup
}

// paths are the root-owned directories that hold all files of the chats.
type paths struct {
	homes, snapshots, tmp, varTmp        string
	sessions, runs, profiles, logs, shim string
	archive, stage, empty                string
	// probe holds the home of the probes' chat, on a file system that chats cannot fill.
	probe string
}

// trees are the directories with a tree of each chat, which the chat owns.
func (p paths) trees() []string { return []string{p.homes, p.snapshots, p.tmp, p.varTmp} }

// Open is [Start] and [Manager.Settle], for callers that need no answer in between. Its error is
// [chat.ErrUnsupported] when a required layer is missing, and [chat.ErrBusy] when another daemon
// holds the state.
func Open(ctx context.Context, opt Options) (*Manager, error) {
	m, err := Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	if err := m.Settle(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func newManager(opt Options) *Manager {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	opt.Private = cmp.Or(opt.Private, opt.State)
	m := &Manager{
		starts: quota.NewLimiter(cmp.Or(opt.Starts, max(2, runtime.NumCPU())), startHold),
		reaps:  make(chan struct{}, maxReaps), opt: opt, log: opt.Log, units: usesUnits(opt.Backend), sessions: map[chat.ID]*liveSession{}, findings: map[string]string{},
		archiving: quota.NewOwnerLimiter(maxArchiving, maxArchiving-1, archiveHold),
		clock:     idle.NewClock(idle.SinceBoot),
		layers:    layers.New(layers.Options{AllowMissing: opt.AllowMissing, Without: opt.Without}),
		since:     time.Now().UTC(), again: make(chan struct{}, 1),
		userdb: &account.Userdb{Dir: opt.Userdb}, useradd: &account.Useradd{},
		paths: paths{
			homes: opt.Homes, snapshots: filepath.Join(opt.Homes, ".snapshots"),
			tmp: filepath.Join(opt.Private, "tmp"), varTmp: filepath.Join(opt.Private, "vartmp"),
			sessions: filepath.Join(opt.Run, "sessions"), runs: filepath.Join(opt.Run, "runs"), profiles: filepath.Join(opt.State, "profiles"),
			logs:    filepath.Join(opt.State, "logs"),
			archive: filepath.Join(opt.State, "bin", "chatd-archive"),
			shim:    filepath.Join(opt.State, "bin", "chatd-shim"), stage: filepath.Join(opt.Run, "stage"), empty: filepath.Join(opt.State, "empty"),
			probe: filepath.Join(opt.Run, "probe"),
		},
	}
	m.policy = policy.New(policy.Options{
		Profiles: opt.Profiles, Rules: opt.FileRules, Home: filepath.Join(opt.Homes, string(probeID)), Trees: m.sharedTrees,
		Dir: filepath.Join(opt.Run, "keeper"), Program: opt.Enforce, Log: opt.Log,
		Unit: m.ownUnits(), Report: func(err error) { m.ReportHung("enforcer", err) },
		Chat: func(id chat.ID) (policy.Chat, error) {
			rec, err := m.store.Get(id)
			return m.chatOf(rec), err
		},
		Audit:  m.auditDeniedTo,
		Denied: func(id chat.ID, d chat.Denied) { m.runs.Denied(id, d) },
	})
	m.gateway = m.newGateway()
	m.traffic = traffic.New(traffic.Options{Now: time.Now, Audit: func(id chat.ID, d map[string]string) {
		m.auditDeniedTo(context.Background(), id, "egress", d)
	}})
	m.secretValues = map[string]secret.Value{}
	m.logs, m.later = console.NewLogs(m.paths.logs), session.NewLater(opt.Log)
	m.programs = session.NewPrograms(m.paths.profiles, opt.Log)
	m.views = m.newViews()
	m.account = m.userdb
	m.openDisks()
	return m
}

// Close ends the daemon's part. Sessions and walls stay: a session does not
// depend on chatd, and a wall must not fall because chatd restarts.
func (m *Manager) Close() error {
	m.stop()
	m.later.Close()
	m.mu.Lock()
	for _, s := range m.sessions {
		s.stopLog()
	}
	m.mu.Unlock()
	m.done.Wait()
	if m.store != nil {
		m.traffic.Flush(true)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, s := range m.sessions {
		errs = append(errs, s.Init.Close())
	}
	errs = append(errs, m.archive.close())
	return errors.Join(append(errs, m.gateway.Shut(), m.leaveNothing(), m.closeState())...)
}

// leaveNothing removes the base cgroup unless a session is left. With systemd the slice is
// systemd's.
func (m *Manager) leaveNothing() error {
	if m.units || len(m.sessions) > 0 {
		return nil
	}
	ids, err := m.groups.IDs()
	if err != nil || len(ids) > 0 {
		return err
	}
	if err := m.groups.RemoveBase(); !errors.Is(err, chat.ErrBusy) {
		return err
	}
	return nil
}

func (m *Manager) closeState() error {
	var errs []error
	if m.groups != nil {
		errs = append(errs, m.groups.Close())
	}
	if m.store != nil {
		errs = append(errs, m.store.Close())
	}
	if m.claim != nil {
		errs = append(errs, m.claim.Close())
	}
	return errors.Join(errs...)
}

func (m *Manager) openState(ctx context.Context) (err error) {
	if err := m.makeState(ctx); err != nil {
		return err
	}
	m.store, err = state.Open(state.Options{
		Dir: m.opt.State, UIDs: m.opt.UIDs, BlockSize: m.opt.UIDs.BlockSize(), AuditMax: m.opt.AuditMax, AuditKeep: m.opt.AuditKeep,
	})
	if err == nil {
		m.beginTime()
	}
	return err
}

// prepareHost makes the root-owned parents. Most have mode 0711: a chat may pass through to its
// own files, and cannot list the parent.
func (m *Manager) prepareHost(context.Context) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{m.paths.sessions, 0o711}, {m.paths.probe, 0o711}, {filepath.Join(m.paths.probe, "tmp"), m.tmpMode()}, {filepath.Join(m.paths.probe, "vartmp"), m.tmpMode()},
		{m.paths.runs, 0o700}, {m.paths.homes, 0o711}, {m.paths.snapshots, 0o711},
		{m.opt.Private, 0o711}, {m.paths.tmp, m.tmpMode()},
		{m.paths.varTmp, m.tmpMode()}, {m.paths.profiles, 0o755}, {m.paths.logs, 0o700}, {filepath.Dir(m.paths.shim), 0o755},
		{m.paths.stage, 0o700}, {filepath.Join(m.paths.stage, "empty"), 0o755}, {m.paths.empty, 0o755},
	} {
		if err := safefs.MakeRoot(d.path, d.mode); err != nil {
			return err
		}
	}
	return errors.Join(m.policy.MakeMasks(), m.gateway.Prepare(), sys.BecomeSubreaper(),
		m.installPrograms(), m.checkViews())
}

// without reports whether the layer is left out; see [layers.Set.Without].
func (m *Manager) without(l chat.LayerName) bool { return m.layers.Without(l) }

func (m *Manager) reconcileLoop(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(m.opt.Every, time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.Reconcile(ctx)
		case <-m.again:
			m.report(aboutWalls, m.probeUnknown(ctx))
		}
	}
}
