package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"golang.org/x/sys/unix"
)

// Start is cmd.Start with the child born in a leaf of the chat: "session" or "runs/<run>". The
// session leaf is made if it is missing. That of a run must have been made by [FS.CreateRun], takes
// one Start, and none after [FS.KillRun] ([chat.ErrWrongPhase]). [chat.ErrBusy] when the limit of
// tasks leaves no room, [chat.ErrNotFound] without the leaf.
//
// The fields UseCgroupFD and CgroupFD of cmd.SysProcAttr are Start's. Pdeathsig
// is refused: it would follow the death of the thread that cloned.
//
// In a chat that keeps using up its CPU quota this call may wait for the rest of a
// period (cgroup v2).
func (f *FS) Start(id chat.ID, leaf string, cmd *exec.Cmd) error {
	return f.StartPrepared(id, leaf, cmd, nil)
}

// Prepare makes things ready for a child. With first 0 it is called on the thread that starts the
// child, which dies afterwards. The child inherits what it does to the thread's namespaces.
// Otherwise first is the unit's first process, which waits.
type Prepare func(first int) error

// StartPrepared is [FS.Start] after prepare, which may be nil.
func (f *FS) StartPrepared(id chat.ID, leaf string, cmd *exec.Cmd, prepare Prepare) error {
	run, err := checkLeaf(leaf)
	if err := errors.Join(checkID(id), err); err != nil {
		return err
	}
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		return chat.Invalid("cannot start %s: Pdeathsig follows a thread, not chatd", cmd.Path)
	}
	leave, err := f.enterGate(id)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	defer leave()
	dir, err := f.openLeaf(id, run)
	if err != nil {
		return err
	}
	defer dir.Close()
	return f.start(id, run, dir, cmd, prepare)
}

// checkLeaf returns the run of "runs/<run>", or "" for "session".
func checkLeaf(leaf string) (run string, err error) {
	if leaf == sessionLeaf {
		return "", nil
	}
	run, ok := strings.CutPrefix(leaf, runsDir+"/")
	if !ok {
		return "", chat.Invalid("cannot use %s as a leaf: want session or runs/<run>", chat.Quote(leaf))
	}
	return run, checkRun(run)
}

// openLeaf opens the directory to be born in. CLONE_INTO_CGROUP into a directory
// that is removed meanwhile fails with ENODEV, so the lock need not be held on.
func (f *FS) openLeaf(id chat.ID, run string) (*os.File, error) {
	defer f.lock(id).Unlock()
	dir := f.dir(id, sessionLeaf)
	if run != "" {
		dir = f.dir(id, runsDir, run)
	}
	if f.isDead(dir) {
		return nil, fmt.Errorf("cannot start in run %s: it was killed: %w", run, chat.ErrWrongPhase)
	}
	if run == "" {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("cannot create the session cgroup: %w", cgroupfs.NotFound(err))
		}
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		err = f.checkThawed(id, dir)
	}
	if err != nil {
		if d != nil {
			_ = d.Close() // a directory
		}
		return nil, fmt.Errorf("cannot open the cgroup to start in: %w", cgroupfs.NotFound(err))
	}
	return d, nil
}

// checkThawed refuses a leaf that somebody froze, by itself or by a cgroup above it. The chat's own
// file counts too: it is frozen while some of its processes have not stopped yet.
func (f *FS) checkThawed(id chat.ID, dir string) error {
	frozen, err := cgroupfs.ReadFlat(dir, "cgroup.events", "frozen")
	if err != nil {
		return err
	}
	is, err := f.Frozen(id)
	if err == nil && (frozen != 0 || is == chat.FrozenUntilThawed) {
		err = errFrozen
	}
	return err
}

func (f *FS) start(id chat.ID, run string, dir *os.File, cmd *exec.Cmd, prepare Prepare) error {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	cmd.SysProcAttr = &attr
	unpin, err := f.pin(id, cmd)
	if err != nil {
		return err
	}
	defer unpin()
	switch {
	case f.legacy != nil:
		err = f.legacyStart(id, run, dir.Name(), cmd, prepare)
	case prepare != nil:
		err = startOnThread(prepare, func() error { return f.startLifted(id, cmd) })
	default:
		err = f.startLifted(id, cmd)
	}
	// The descriptor is closed now; its number may be somebody else's next.
	attr.UseCgroupFD, attr.CgroupFD = false, 0
	if errors.Is(err, unix.EAGAIN) {
		err = errors.Join(chat.ErrBusy, err)
	}
	if err != nil {
		return fmt.Errorf("cannot start %s in %s: %w", cmd.Path, dir.Name(), err)
	}
	return nil
}

// legacyStart starts from a thread that stands in the chat's v1 cgroups. While the chat has no CPU
// quota, as when its session starts, that is so for all controllers. Otherwise the child joins the
// cpu cgroup once it has exec'd. A child that cannot be bounded is killed.
func (f *FS) legacyStart(id chat.ID, run, dir string, cmd *exec.Cmd, prepare Prepare) error {
	quota, _, err := f.quota(id)
	if err != nil {
		return err
	}
	bounded := quota != "-1"
	controllers := []string{"pids", "memory", "cpu"}
	if bounded {
		controllers = controllers[:2]
	}
	for _, c := range furtherLegacy {
		if f.legacy.has(c, id) {
			controllers = append(controllers, c)
		}
	}
	err = startOnThread(func(int) error {
		err := f.legacy.lendThread(id, run, controllers)
		if err == nil && prepare != nil {
			err = prepare(0) // last: the thread may not see the host's cgroups after it
		}
		return err
	}, cmd.Start)
	if err != nil || !bounded {
		return err
	}
	if err = f.legacy.join("cpu", id, func() ([]int, error) { return cgroupfs.Processes(dir) }); err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	err = errors.Join(err, cgroupfs.Kill(ctx, dir, nil, nil))
	f.markKilled(dir)
	return errors.Join(err, waitAny(cmd))
}

// startOnThread calls prepare and then start, both on a thread that dies afterwards.
func startOnThread(prepare Prepare, start func() error) error {
	return sys.OnThread(func() error {
		if err := prepare(0); err != nil {
			return err
		}
		return start()
	})
}
