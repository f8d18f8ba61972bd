package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/unshare"
)

// trees are the files for which a session of view v must have inodes of its own. The mounts are
// those that process pid has, or this one.
func (m *Manager) trees(v shims.View, pid string) (unshare.Trees, error) {
	t := unshare.Trees{Dir: m.paths.stage, Empty: []string{m.paths.empty, filepath.Join(m.paths.stage, "empty")}, Lowers: []string{m.opt.State}}
	t.Shared, t.Through = v.Shared()
	mounts, err := sys.ReadMounts("/proc/" + pid + "/mountinfo")
	for _, mount := range mounts {
		t.Mounts = append(t.Mounts, mount.Path)
	}
	return t, err
}

// keepApart gives a session of view v inodes of its own for files that sessions share, before
// bubblewrap binds them. It is nil if the layer is left out or the host cannot do it.
func (m *Manager) keepApart(rec state.Record, v shims.View) cgroup.Prepare {
	if m.without(chat.LayerView) || m.sharing != nil {
		return nil
	}
	return func(first int) error {
		if first == 0 {
			return unshare.InOwn(func() error { return m.stage(rec, v, "self") })
		}
		l, err := sys.HoldProcess(sys.Process{PID: first})
		if err != nil {
			return err
		}
		defer l.Close()
		return unshare.In(toJoin(l), func() error { return m.stage(rec, v, strconv.Itoa(first)) })
	}
}

// stage puts the overlays in place, in the mount namespace of the calling thread, which process
// pid has too.
func (m *Manager) stage(rec state.Record, v shims.View, pid string) error {
	t, err := m.trees(v, pid)
	if err != nil {
		return err
	}
	asTheyAre, err := unshare.Stage(t)
	if len(asTheyAre) > 0 {
		m.log.Warn("a session shares files with others as they are", "chat", rec.ID, "files", asTheyAre)
	}
	return err
}

// toJoin names a session's process to package unshare.
func toJoin(l *sys.HeldProcess) unshare.Process {
	return unshare.Process{PID: l.PID, Alive: l.Alive}
}

// tryApart tries whether this host can keep sessions apart by inode. The result of chatd's
// start holds until chatd ends.
func (m *Manager) tryApart() {
	if m.settled.Load() || m.without(chat.LayerView) {
		return
	}
	pid := "self"
	if m.units {
		pid = "1"
	}
	t, err := m.trees(m.view(state.Record{ID: probeID, UID: m.probeUID()}), pid)
	if err == nil {
		err = unshare.Try(t)
	}
	if m.sharing = err; err != nil {
		m.log.Warn("sessions share inodes with each other and with the host", "why", err)
	}
}

// furnish does the work of root in a session that has not begun: it masks counters of the host
// and bounds the session's terminals. Then it calls then, unless that is nil.
func (m *Manager) furnish(then func(context.Context, *sys.HeldProcess) error) func(context.Context, *sys.HeldProcess) error {
	return func(ctx context.Context, l *sys.HeldProcess) error {
		var err error
		if !m.without(chat.LayerProc) {
			err = unshare.Mask(toJoin(l))
		}
		if err == nil && !m.without(chat.LayerView) {
			err = unshare.BoundTerminals(toJoin(l))
		}
		if err == nil && then != nil {
			err = then(ctx, l)
		}
		return err
	}
}

// refreshEvery is how old a session's view of the host's trees may be when a command enters
// it. A change of the commands in PATH always causes a refresh.
const refreshEvery = time.Second

// refresh shows a session the host's changes to its trees: an overlay caches the names that
// were looked up. A failure is only logged: the session works without the changes.
func (m *Manager) refresh(s *session) {
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	links := m.linked.times.Load()
	if time.Since(s.refreshed) < refreshEvery && s.links == links {
		return
	}
	if err := s.refreshTrees(); err != nil && s.init.Alive() {
		m.log.Warn("a session may not see what the host changed", "chat", s.id, "why", err)
	}
	s.refreshed, s.links = time.Now(), links
}

func (s *session) refreshTrees() error {
	if s.overlays == nil {
		mounts, err := sys.ReadMounts(fmt.Sprintf("/proc/%d/mountinfo", s.init.PID))
		if err != nil {
			return err
		}
		s.overlays = overlaysIn(mounts)
	}
	return unshare.Refresh(toJoin(s.init), s.overlays)
}

// overlaysIn returns the mount points of chatd's overlays, one for each overlay.
func overlaysIn(mounts []sys.Mount) []string {
	paths, seen := []string{}, map[string]bool{}
	for _, mount := range mounts {
		if strings.HasPrefix(mount.Source, unshare.SourcePrefix) && !seen[mount.Dev] {
			seen[mount.Dev] = true
			paths = append(paths, mount.Path)
		}
	}
	return paths
}

// lockShared locks files that sessions share, and returns their paths inside the session. A
// probe there tries to take the same locks.
func (m *Manager) lockShared() (inside []string, unlock func(), err error) {
	var held []*os.File
	unlock = func() { closeFiles(held...) }
	root := "/"
	if m.units { // chatd's own /dev may differ from that of sessions
		root = "/proc/1/root"
	}
	for _, p := range [][2]string{{"/usr", "/usr"}, {"/dev/null", "/dev/null"}, {m.paths.shim, shims.InsideShim}} {
		f, err := os.Open(filepath.Join(root, p[0]))
		if err == nil {
			held = append(held, f)
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		}
		if err != nil {
			unlock()
			return nil, nil, fmt.Errorf("cannot hold a lock on %s: %w", p[0], err)
		}
		inside = append(inside, p[1])
	}
	return inside, unlock, nil
}
