package provision

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/netpolicy/egresslog"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/diskquota"
	"github.com/chatd/chatd/provision/filecall"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/packetrules"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/provision/scheduler"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/shares"
	"github.com/chatd/chatd/provision/terminal"
	"github.com/chatd/chatd/provision/unshare"
	"github.com/chatd/chatd/provision/view"
	"github.com/chatd/chatd/state"
)

// newManager returns a Manager that has opened nothing yet. The store may be nil for one that only
// tries or looks.
func newManager(opt Options, store *state.Store) *Manager {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Progress == nil {
		opt.Progress = func(string) {}
	}
	opt.Private = cmp.Or(opt.Private, opt.State)
	k := &chats{opt: opt, store: store, log: opt.Log, trail: audit.New(store, opt.Log), dirs: newDirs(opt)}
	m := &Manager{life: &life{sessions: &sessions{chats: k}}, since: time.Now().UTC()}
	m.bg, m.stop = context.WithCancel(context.Background())
	m.later, m.archive, m.calls = session.NewLater(opt.Log), &archives.Activity{}, &filecall.Calls{}
	m.layers = layers.New(layers.Options{AllowMissing: opt.AllowMissing, Without: opt.Without})
	m.groups = &cgroups{dirs: m.dirs, log: m.log}
	m.policy = m.newPolicy()
	m.packets = &packetrules.Rules{
		Claims: opt.Claim, Unwatched: opt.Unwatched, UIDs: opt.UIDs, DNSUID: opt.dnsUID(),
		GID: opt.EgressGID, Servers: opt.DNSServers, Profiles: opt.Profiles, Policy: m.policy,
		Layers: m.layers, Store: store, Trail: m.trail, Log: opt.Log,
	}
	m.secrets = &secrets{chats: k, values: map[string]secret.Value{}}
	m.gateway = m.newGateway()
	m.secrets.gateway = m.gateway
	m.traffic = egresslog.New(egresslog.Options{Now: time.Now, Audit: func(id chat.ID, d map[string]string) {
		m.trail.DeniedTo(context.Background(), id, "egress", d)
	}})
	m.starts = admission.NewStarts(m.layers, m.packets, cmp.Or(opt.Starts, max(2, runtime.NumCPU())))
	m.assemble()
	return m
}

func (m *Manager) newPolicy() *policy.InForce {
	return policy.New(policy.Options{
		Profiles: m.opt.Profiles, Rules: m.opt.FileRules, Home: m.dirs.Home(probeID),
		Trees: func(profile string) []chat.Exposed { return m.mounts.sharedTrees(profile) },
		Dir:   filepath.Join(m.opt.Run, "keeper"), Program: m.opt.Enforce, Log: m.log,
		Unit: m.groups.ownUnits(), Report: func(err error) { m.ReportHung("enforcer", err) },
		Chat: func(id chat.ID) (policy.Chat, error) {
			c, err := m.chats.get(id)
			return c.rules(), err
		},
		Audit:  m.trail.DeniedTo,
		Denied: func(id chat.ID, d chat.Denied) { m.runs.Denied(id, d) },
	})
}

// newGateway returns what carries the connections of chats with a network of their own.
func (m *Manager) newGateway() *gateway.Gateway {
	return gateway.New(gateway.Options{
		Dir: filepath.Join(m.opt.Run, "egress"), Program: m.opt.Egress,
		UID: m.opt.EgressUID, GID: m.opt.EgressGID, DNSUID: m.opt.dnsUID(), Unit: m.groups.ownUnits(),
		Servers: m.opt.DNSServers, MaxFlows: m.opt.MaxFlows,
		Secrets: gateway.SecretOptions{Grants: m.secrets.grants, Issue: m.secrets.issue, Roots: hostRoots},
		Bound:   func(pid int) error { return m.groups.Bound(cgroup.Egress, pid) },
		Report:  func(err error) { m.trail.Report("chatd-egress", err) }, Log: m.log,
		Events: m.tookEvents,
	})
}

func (m *Manager) newViews() *view.Planner {
	return view.New(view.Options{
		Homes: m.dirs.Homes,
		Own:   []string{m.opt.Homes, m.opt.State, m.opt.Run, m.opt.Private, m.opt.Userdb},
		Units: m.dirs.units, Shim: m.dirs.shim, Programs: m.programs, Layers: m.layers, Log: m.log,
	})
}

func (m *Manager) newClock(read func() (wall time.Time, boot time.Duration)) *idle.Clock {
	file := filepath.Join(m.opt.Run, "clock")
	return idle.NewClock(idle.ClockOptions{Read: read, File: file, MoveAll: m.store.MoveUsed, Log: m.log})
}

// newStarter returns what starts sessions in the groups.
func (m *Manager) newStarter() *session.Starter {
	boot, _ := sys.BootID() // Start refuses a host without one
	return session.New(session.Options{
		Groups: m.groups, Units: m.dirs.units, Boot: boot, Shim: m.dirs.shim,
		Tmp: m.dirs.Tmp, VarTmp: m.dirs.VarTmp,
		Overlays: unshare.Trees{
			Dir: m.dirs.stage, Lowers: []string{m.opt.State},
			Empty: []string{m.dirs.empty, filepath.Join(m.dirs.stage, "empty")},
		},
		LandlockABI: m.opt.LandlockABI, Programs: m.programs, Later: m.later, Log: m.log,
	})
}

// assemble makes the parts that need others, from the lowest.
func (m *Manager) assemble() {
	m.programs = session.NewPrograms(m.dirs.commands, m.log)
	m.starter, m.logs = m.newStarter(), terminal.NewLogs(m.dirs.logs, m.log)
	m.runs = background.New(background.Options{
		Dir: m.dirs.runs, Shim: m.dirs.shim, UID: m.dirs.probeUID, Groups: m.groups, Log: m.log,
	})
	m.due = &scheduler.Schedules{Store: m.store, Runs: m.runs, Report: m.trail.Report, Log: m.log}
	m.disk = m.newDisk()
	m.mounts = &mounts{chats: m.chats, views: m.newViews(), disk: m.disk}
	m.clock = m.newClock(idle.SinceBoot)
	m.newAccounts, m.useradd, m.reaps = m.dirs.userdb, &account.Useradd{}, make(chan struct{}, maxReaps)
	m.idle = idle.New(idle.Options{
		Awake: m.awakeChats, Work: m.work, CPU: m.groups.cpuTime, Use: m.store.Touch,
		Sleep: m.sleepIdle, Freeze: m.freezeIdle, Log: m.log,
	})
	m.shares = shares.New(shares.Options{
		Limits: m.opt.Shares, MaxAwake: m.opt.MaxAwake, MaxMemory: m.opt.MaxAwakeMemory, UIDs: m.opt.UIDs,
		Store: m.store, Awake: m.chats.places, RunBytes: m.runs.Kept, MakeRoom: m.idle.MakeRoom,
	})
	m.runner, m.archiver = &runner{m.life}, &archiver{
		life: m.life, archiving: quota.NewOwnerLimiter(maxArchiving, maxArchiving-1, archiveHold),
	}
}

func (m *Manager) newDisk() *disk {
	d := &disk{chats: m.chats, logs: m.logs, diskQuotas: diskquota.New(m.dirs.Trees()...)}
	if m.layers.Without(chat.LayerDisk) {
		d.diskQuotas = diskquota.New() // which bounds and counts nothing
	}
	d.diskWatch = diskquota.NewWatch(diskquota.Options{
		Disks: d.diskQuotas, Chats: d.all, Report: d.reportFull, Every: m.opt.DiskEvery, Log: m.log,
		Over: m.sleepFull,
	})
	return d
}

// Close ends the daemon's part. Sessions and walls stay: a session does not
// depend on chatd, and a wall must not fall because chatd restarts.
func (m *Manager) Close() error {
	m.stop()
	m.later.Close()
	for _, s := range m.chats.allSessions() {
		s.stopLog()
	}
	m.done.Wait()
	m.traffic.Flush(true)
	awake, errs := m.chats.allSessions(), []error{}
	for _, s := range awake {
		errs = append(errs, s.Init.Close())
	}
	errs = append(errs, m.archive.Close())
	return errors.Join(append(errs, m.gateway.Shut(), m.groups.leaveNothing(len(awake) > 0),
		m.closeState())...)
}

func (m *Manager) closeState() (err error) {
	if m.groups.groups != nil {
		err = m.groups.Close()
	}
	return errors.Join(err, m.store.Close(), m.packets.Close())
}
