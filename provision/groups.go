package provision

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
)

// cgroups bounds sessions, by the backend that open chooses.
type cgroups struct {
	groups
	dirs *dirs
	log  *slog.Logger
}

// Backends that bound and start sessions.
const (
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
	Drift(chat.ID, chat.Limits) ([]string, error)
	Unreclaimable(chat.ID) (uint64, error)
	Hits(chat.ID) (chat.LimitHits, error)
	LimitCPU(chat.ID, chat.Limits) error
	Unkept(chat.Limits) []string
	Freeze(chat.ID) error
	Thaw(chat.ID) error
	FreezeAll(context.Context, chat.ID) error
	ThawAll(context.Context, chat.ID) error
	Frozen(chat.ID) (chat.Frozen, error)
	Pause(context.Context, chat.ID) (goOn func() error, err error)
	EndPause(chat.ID) error
	Remove(chat.ID) error
	Usage(chat.ID) (chat.Usage, error)
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
func (g *cgroups) ownUnits() bool { return g.dirs.units && os.Getenv("INVOCATION_ID") != "" }

// open chooses the backend. If systemd is PID 1, it must own the sessions, which would otherwise end
// with chatd's own unit.
func (g *cgroups) open(ctx context.Context, opt Options) error {
	// Chats write to these disks, and read the programs in /usr.
	dirs := []string{g.dirs.Homes, g.dirs.Tmp, g.dirs.VarTmp, "/usr"}
	o := cgroup.Options{Name: opt.Cgroup, PAM: pamService, Dirs: dirs, Without: opt.Without,
		StateFile: filepath.Join(opt.Run, "cgroup.json")}
	if !g.dirs.units {
		fs, err := cgroup.OpenFS(o)
		if err == nil { // or a nil pointer would become a backend
			g.groups = fs
		}
		return err
	}
	if slices.Contains(opt.Without, chat.LayerTmp) {
		o.PAM = "" // pam_namespace implements that layer
	}
	units, err := cgroup.OpenUnits(ctx, o)
	if err == nil {
		g.groups = units
	}
	return err
}

// words names the backend and its mode, for Host.
func (g *cgroups) words() string {
	switch {
	case g.groups == nil: // no backend was opened
		return "unknown"
	case g.dirs.units:
		return g.Mode()
	}
	return "cgroupfs, " + g.Mode()
}

// frozen says what the kernel shows of the chat. One that cannot be read is not frozen: whatever
// would use it reads again.
func (g *cgroups) frozen(id chat.ID) chat.Frozen {
	is, err := g.Frozen(id)
	if err != nil {
		g.log.Error("cannot tell whether a chat is frozen", "chat", id, "error", err)
	}
	return is
}

// leaveNothing removes the base cgroup unless a session is left. With systemd the slice is
// systemd's.
func (g *cgroups) leaveNothing(used bool) error {
	if g.dirs.units || used {
		return nil
	}
	ids, err := g.IDs()
	if err != nil || len(ids) > 0 {
		return err
	}
	if err := g.RemoveBase(); !errors.Is(err, chat.ErrBusy) {
		return err
	}
	return nil
}

// orphans lists the cgroups that may be cleared: all of them or, where the units are
// systemd's, only the cgroup of a probe that a crash left.
func (g *cgroups) orphans() ([]chat.ID, error) {
	ids, err := g.IDs()
	if !g.dirs.units {
		return ids, err
	}
	return slices.DeleteFunc(ids, func(id chat.ID) bool { return id != probeID }), err
}

// removeBase removes the base cgroup of a try, if it was made.
func (g *cgroups) removeBase() error {
	if g.groups == nil {
		return nil
	}
	return errors.Join(g.RemoveBase(), g.Close())
}

// cpuTime is the CPU time of a chat's session so far.
func (g *cgroups) cpuTime(id chat.ID) (time.Duration, error) {
	u, err := g.Usage(id)
	return u.CPU.D(), err
}
