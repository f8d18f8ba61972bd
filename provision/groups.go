package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/due"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/provision/shares"
	"github.com/chatd/chatd/provision/unshare"
)

// Backends that bound and start sessions.
const (
	BackendAuto     = "auto"     // systemd where it is PID 1, else cgroupfs
	BackendSystemd  = "systemd"  // a transient service per session
	BackendCgroupfs = "cgroupfs" // chatd's own cgroups
)

// groups are the methods that both backends of package cgroup have, [cgroup.FS]
// and [cgroup.Units]; see there.
type groups interface {
	background.Groups
	Mode() string
	Create(chat.ID, chat.Limits) error
	session.StartGroups
	Limit(chat.ID, chat.Limits) error
	LimitCPU(chat.ID, chat.Limits) error
	Drift(chat.ID, chat.Limits) ([]string, error)
	Held(chat.ID) (uint64, error)
	Unkept(chat.Limits) []string
	Freeze(chat.ID) error
	Thaw(chat.ID) error
	Hold(context.Context, chat.ID) error
	Release(context.Context, chat.ID) error
	Frozen(chat.ID) (chat.Frozen, error)
	Pause(context.Context, chat.ID) (goOn func() error, err error)
	EndPause(chat.ID) error
	Remove(chat.ID) error
	Usage(chat.ID) (chat.Usage, error)
	Hits(id chat.ID) (chat.LimitHits, error)
	Processes(chat.ID) (map[int]string, error)
	IDs() ([]chat.ID, error)
	Quarantine(ctx context.Context, known func(chat.ID) bool) ([]string, error)
	Bound(own cgroup.Own, pid int) error
	Unbound(own cgroup.Own)
	Probe(context.Context, cgroup.FailedLayer) []chat.Layer
	RemoveBase() error
	Close() error
}

// pamService is the file under /etc/pam.d through which sessions are opened.
const pamService = "chatd"

// usesUnits reports whether the backend, as configured, means systemd on this host.
func usesUnits(backend string) bool {
	return backend == BackendSystemd || backend != BackendCgroupfs && cgroup.Booted()
}

// ownUnits reports whether systemd starts chatd's helpers too: a process that chatd's own service
// starts ends with the service.
func (m *Manager) ownUnits() bool { return m.units && os.Getenv("INVOCATION_ID") != "" }

// openGroups chooses the backend. If systemd is PID 1, it must own the sessions,
// which would otherwise end with chatd's own unit.
func (m *Manager) openGroups(ctx context.Context) (err error) {
	if m.groups, err = m.newGroups(ctx); err != nil {
		return err
	}
	m.runs = background.New(background.Options{
		Dir: m.paths.runs, Shim: m.paths.shim, UID: m.probeUID(), Groups: m.groups, Log: m.log,
	})
	m.due = due.New(due.Options{Store: m.store, Runs: m.runs, Report: m.report, Log: m.log})
	m.idle = idle.New(idle.Options{
		Awake: m.awakeChats, Work: m.work, CPU: m.cpuTime, Use: m.store.Touch,
		Sleep: m.sleepIdle, Freeze: m.freezeIdle, Log: m.log,
	})
	m.shares = shares.New(shares.Options{
		Limits: m.opt.Shares, MaxAwake: m.opt.MaxAwake, MaxMemory: m.opt.MaxAwakeMemory,
		UIDs: m.opt.UIDs, Store: m.store,
		Awake: m.places, RunBytes: m.runs.Kept, MakeRoom: m.idle.MakeRoom,
	})
	m.boot, err = sys.BootID()
	m.starter = m.newStarter()
	return err
}

func (m *Manager) newGroups(ctx context.Context) (groups, error) {
	if !m.units {
		return keepNil(cgroup.OpenFS(cgroup.Options{
			Name: m.opt.Cgroup, StateFile: filepath.Join(m.opt.Run, "cgroup.json"),
			Dirs: m.boundedDirs(), Without: m.opt.Without,
		}))
	}
	o := cgroup.UnitOptions{Name: m.opt.Cgroup, PAM: pamService, Dirs: m.boundedDirs(), Without: m.opt.Without}
	if m.without(chat.LayerTmp) {
		o.PAM = "" // pam_namespace implements that layer
	}
	return keepNil(cgroup.OpenUnits(ctx, o))
}

// newStarter returns what starts sessions in the groups.
func (m *Manager) newStarter() *session.Starter {
	return session.New(session.Options{
		Groups: m.groups, Units: m.units, Boot: m.boot, Shim: m.paths.shim,
		Tmp: m.paths.tmp, VarTmp: m.paths.varTmp,
		Overlays: unshare.Trees{
			Dir: m.paths.stage, Lowers: []string{m.opt.State},
			Empty: []string{m.paths.empty, filepath.Join(m.paths.stage, "empty")},
		},
		LandlockABI: m.opt.LandlockABI, Programs: m.programs, Later: m.later, Log: m.log,
	})
}

// boundedDirs are the directories whose disks a profile's bounds on block I/O hold for: what chats
// write to, and the programs that every chat reads.
func (m *Manager) boundedDirs() []string {
	return []string{m.paths.homes, m.paths.tmp, m.paths.varTmp, "/usr"}
}

// ReportHung is told of a process of chatd's that did not answer, and nil once another one does. It
// keeps what was wrong among the failures, and as a finding until then.
func (m *Manager) ReportHung(who string, err error) {
	if err != nil {
		m.remember(chat.Failure{Action: who, By: "chatd", Error: err.Error()})
	}
	m.report("the "+who, err)
}

// BoundFront moves the front, a child of this process, to a cgroup of its own with a bound on
// memory and tasks.
func (m *Manager) BoundFront(pid int) error { return m.groups.Bound(cgroup.Front, pid) }

// keepNil keeps a nil pointer from becoming an interface that is not nil.
func keepNil[G groups](g G, err error) (groups, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}

// backend names the backend and its mode, for Host.
func (m *Manager) backend() string {
	switch {
	case m.groups == nil: // no backend was opened
		return "unknown"
	case m.units:
		return m.groups.Mode()
	}
	return "cgroupfs, " + m.groups.Mode()
}

// quarantine freezes and reports the units of the slice that belong to no chat.
func (m *Manager) quarantine(ctx context.Context) error {
	known := func(id chat.ID) bool {
		return id == probeID || m.hasChat(id) || m.archive.isBeside(id)
	}
	names, err := m.groups.Quarantine(ctx, known)
	if len(names) == 0 {
		return err
	}
	return errors.Join(err, fmt.Errorf("units in the chats' slice belong to no chat and are frozen: "+
		"inspect them with systemctl status, then systemctl thaw or stop: %v", names))
}
