package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

const (
	unitSuffix  = ".service"
	unifiedRoot = "/sys/fs/cgroup"
	// stopTime bounds the end of a unit and of its cgroup.
	stopTime = 30 * time.Second
)

// Units is the systemd backend: each session is a transient service that PID 1 owns, so that it
// outlives chatd, and whose limits systemd sets. Below a unit everything (leaves, runs, usage,
// killing) is as with [FS] under cgroup v2.
type Units struct {
	*FS
	version string
	slice   string

	bus systemd.Bus

	startMu    sync.Mutex
	handshakes map[chat.ID]*systemd.Handshake // sessions whose first process still waits for Settle
}

// Booted reports whether systemd is PID 1 (sd_booted(3)) and cgroup v2 alone is
// mounted where it puts its units.
func Booted() bool {
	return systemd.Booted() && isUnified(unifiedRoot)
}

// isUnified: cgroup2 is mounted here, and every controller that the limits need
// is offered.
func isUnified(dir string) bool {
	offered, err := words(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && isCgroup(dir, filepath.Base(dir), unix.CGROUP2_SUPER_MAGIC) &&
		missing(offered, controllers) == nil
}

// OpenUnits connects to systemd and starts the slice. The error is
// [chat.ErrUnsupported] on a host that is not [Booted], [chat.ErrBusy] when
// another daemon holds the slice. The caller closes it.
func OpenUnits(ctx context.Context, o Options) (*Units, error) {
	if err := chat.CheckName("cgroup name", o.Name); err != nil {
		return nil, err
	}
	if !Booted() {
		return nil, fmt.Errorf("cannot use backend systemd: systemd is not PID 1, or %s is not cgroup v2: %w",
			unifiedRoot, chat.ErrUnsupported)
	}
	slice := strings.ReplaceAll(o.Name, "-", "_") + ".slice"
	u := &Units{
		FS: newUnitsFS(o, filepath.Join(unifiedRoot, slice)), slice: slice,
		handshakes: map[chat.ID]*systemd.Handshake{},
	}
	if err := u.open(ctx); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	u.crowded = u.besideOwn()
	return u, nil
}

func (u *Units) open(ctx context.Context) (err error) {
	if u.version, err = u.bus.Version(ctx); err != nil {
		return err
	}
	if err := u.startSlice(ctx); err != nil {
		return err
	}
	if err := u.holdBase(); err != nil {
		return err
	}
	return u.endProbes(ctx)
}

// startSlice makes the slice's cgroup be there and closes it to listing: its
// entries are chats. Passing through stays allowed, for a session's first process
// acts as the chat when it makes its leaf.
func (u *Units) startSlice(ctx context.Context) error {
	if err := u.bus.Start(ctx, u.slice); err != nil {
		return err
	}
	if err := os.Chmod(u.bases.Unified, 0o711); err != nil {
		return fmt.Errorf("cannot close the slice to others: %w", err)
	}
	return nil
}

// Mode is "systemd 252, cgroup v2", with the version that runs.
func (u *Units) Mode() string {
	major, _, _ := strings.Cut(u.version, ".")
	return "systemd " + major + ", " + u.mode
}

// Close gives the slice up and lets systemd's bus go. Units stay as they are; a
// session that was not settled yet ends.
func (u *Units) Close() error {
	u.startMu.Lock()
	for _, d := range u.handshakes {
		d.Close()
	}
	clear(u.handshakes)
	u.startMu.Unlock()
	u.bus.Close()
	return u.FS.Close()
}

// RemoveBase stops the slice, as uninstalling does. It is [chat.ErrBusy] while
// something is in it.
func (u *Units) RemoveBase() error {
	full, err := cgroupfs.Populated(u.bases.Unified)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if full {
		pids, err := cgroupfs.Members(u.bases.Unified)
		return fmt.Errorf("cannot stop %s: the processes %v are in it: %w", u.slice, pids,
			errors.Join(chat.ErrBusy, err))
	}
	if err := u.stopSupervisorUnit(); err != nil {
		return err
	}
	return u.bus.Stop(context.Background(), u.slice)
}
