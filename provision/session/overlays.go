package session

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
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/unshare"
)

// trees are the files for which a session of view v must have inodes of its own. The mounts are
// those of process pid, or of this process.
func (s *Starter) trees(v plan.View, pid string) (unshare.Trees, error) {
	t := s.opt.Overlays
	t.Shared, t.Through = v.Shared()
	mounts, err := sys.ReadMounts("/proc/" + pid + "/mountinfo")
	for _, mount := range mounts {
		t.Mounts = append(t.Mounts, mount.Path)
	}
	return t, err
}

// stageOverlays gives a session of view v inodes of its own for files that sessions share, before
// bubblewrap binds them. It is nil if the layer is left out or the host cannot do it.
func (s *Starter) stageOverlays(id chat.ID, v plan.View) cgroup.Prepare {
	if !s.StagesOverlays(v) {
		return nil
	}
	return func(first int) error {
		if first == 0 {
			return unshare.InOwn(func() error { return s.stage(id, v, "self") })
		}
		l, err := sys.OpenProcess(sys.Process{PID: first})
		if err != nil {
			return err
		}
		defer l.Close()
		return unshare.In(l, func() error { return s.stage(id, v, strconv.Itoa(first)) })
	}
}

// stage mounts the overlays in the mount namespace of the calling thread, which is also that of
// process pid.
func (s *Starter) stage(id chat.ID, v plan.View, pid string) error {
	t, err := s.trees(v, pid)
	if err != nil {
		return err
	}
	asTheyAre, err := unshare.Stage(t)
	if len(asTheyAre) > 0 {
		s.opt.Log.Warn("a session shares files with others as they are",
			"chat", id, "files", asTheyAre)
	}
	return err
}

// TryApart tries whether this host can give sessions of view v inodes of their own. After an
// error, sessions share files as they are.
func (s *Starter) TryApart(v plan.View) error {
	pid := "self"
	if s.opt.Units {
		pid = "1"
	}
	t, err := s.trees(v, pid)
	if err == nil {
		err = unshare.Try(t)
	}
	s.shares = err
	return err
}

// LockShared locks files that sessions share, until unlock is called, and returns their paths
// inside a session. A probe there tries to take the same locks.
func (s *Starter) LockShared() (inside []string, unlock func(), err error) {
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			_ = f.Close() // it was opened for reading
		}
	}
	root := "/"
	if s.opt.Units { // chatd's own /dev may differ from that of sessions
		root = "/proc/1/root"
	}
	for _, p := range [][2]string{
		{"/usr", "/usr"}, {"/dev/null", "/dev/null"}, {s.opt.Shim, plan.InsideShim},
	} {
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

// StagesOverlays reports whether a session of view v has inodes of its own.
func (s *Starter) StagesOverlays(v plan.View) bool {
	return s.shares == nil && !v.LeavesOut(chat.LayerView)
}

// prepareMounts does the work of root in a session of view v that has not begun. It masks counters of the
// host and bounds the session's terminals. Then it calls then, unless that is nil.
func prepareMounts(
	v plan.View, then func(context.Context, *sys.ProcessHandle) error,
) func(context.Context, *sys.ProcessHandle) error {
	return func(ctx context.Context, l *sys.ProcessHandle) error {
		var err error
		if !v.LeavesOut(chat.LayerProc) {
			err = unshare.Mask(l)
		}
		if err == nil && !v.LeavesOut(chat.LayerView) {
			err = unshare.BoundTerminals(l)
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

// Refresh shows a session the host's changes to its trees: an overlay caches the names that
// were looked up. A failure is only logged: the session works without the changes.
func (s *Starter) Refresh(in *Session) {
	in.refreshing.Lock()
	defer in.refreshing.Unlock()
	made := s.opt.Programs.made.Load()
	if time.Since(in.refreshed) < refreshEvery && in.made == made {
		return
	}
	if err := in.refreshTrees(); err != nil && in.Init.Alive() {
		s.opt.Log.Warn("a session may not see what the host changed", "chat", in.Chat, "why", err)
	}
	in.refreshed, in.made = time.Now(), made
}

func (in *Session) refreshTrees() error {
	if in.overlays == nil {
		mounts, err := sys.ReadMounts(fmt.Sprintf("/proc/%d/mountinfo", in.Init.PID))
		if err != nil {
			return err
		}
		in.overlays = overlaysIn(mounts)
	}
	return unshare.Refresh(in.Init, in.overlays)
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
