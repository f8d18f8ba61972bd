package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// Runs lists the leaves of runs that the chat has, in no order; none without its tree.
func (f *FS) Runs(id chat.ID) ([]string, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	return cgroupfs.Below(f.dir(id, runsDir))
}

// OpenKill opens the cgroup.kill of a run, for a process of chatd's own that may write to nothing
// else. Its holder can end the run, and no other.
func (f *FS) OpenKill(id chat.ID, run string) (*os.File, error) {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return nil, err
	}
	w, err := os.OpenFile(filepath.Join(f.dir(id, runsDir, run), "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open the cgroup of run %s: %w", run, cgroupfs.NotFound(err))
	}
	return w, nil
}

// TakeOut moves a process of chatd's own, which was started in a leaf and must not be bounded by
// it, to where chatd is. pid must be a child that nobody has collected. Processes that it started
// in the leaf stay.
func (f *FS) TakeOut(_ context.Context, pid int) error {
	h, err := readHost()
	if err != nil {
		return err
	}
	dirs, err := f.legacyLeft(pid, h)
	if err != nil {
		return err
	}
	// The one by which it is found comes last: a chatd that comes after a crash in between moves it
	// again.
	return moveTo(pid, append(dirs, h.unified)...)
}

// legacyLeft are the v1 cgroups of chatd that a process left for those of a chat. A move from one
// that it is in would be no less work for the kernel.
func (f *FS) legacyLeft(pid int, h host) (dirs []string, err error) {
	own, err := cgroupsOf(strconv.Itoa(pid))
	if err != nil {
		return nil, err
	}
	for c, base := range f.legacy {
		if strings.Contains(own[c]+"/", "/"+filepath.Base(base)+"/") {
			dirs = append(dirs, h.legacy[c])
		}
	}
	return dirs, nil
}

// TakeOut moves it to a unit of its own kind: systemd ends what is in chatd's when chatd
// ends, and the other units are chats'.
func (u *Units) TakeOut(ctx context.Context, pid int) error {
	dir := filepath.Join(unifiedRoot, "system.slice", u.supervisorUnit())
	err := moveTo(pid, dir)
	if !errors.Is(err, chat.ErrNotFound) && !errors.Is(err, unix.ENODEV) {
		return err
	}
	if err := u.startSupervisorUnit(ctx); err != nil {
		return err
	}
	return moveTo(pid, dir)
}

func moveTo(pid int, dirs ...string) error {
	for _, dir := range dirs {
		if err := cgroupfs.Write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cannot take process %d out of its leaf: %w", pid, err)
		}
	}
	return nil
}

// supervisorUnit is where the supervisors of runs are, beside a process that only keeps it there.
func (u *Units) supervisorUnit() string { return u.o.Name + "-minders" + unitSuffix }

func (u *Units) startSupervisorUnit(ctx context.Context) error {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", u.supervisorUnit(), err)
	}
	err = u.bus.StartTransient(ctx, u.supervisorUnit(), systemd.Service(
		"What minds the background runs of chats", "system.slice", []string{sleep, "infinity"}))
	if errors.Is(err, chat.ErrExists) {
		return nil
	}
	return err
}

// stopSupervisorUnit ends the supervisors that are left, as uninstalling does.
func (u *Units) stopSupervisorUnit() error {
	if _, err := os.Stat(filepath.Join(unifiedRoot, "system.slice", u.supervisorUnit())); err != nil {
		return nil
	}
	return u.bus.Stop(context.Background(), u.supervisorUnit())
}
