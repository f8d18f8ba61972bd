package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"golang.org/x/sys/unix"
)

// bases are the base directories in use; the state file is this as JSON.
type bases struct {
	Mode    string            `json:"mode"`
	Unified string            `json:"unified"`
	Legacy  map[string]string `json:"legacy,omitempty"` // by v1 controller
}

// findBases puts the base below the own cgroup. A process that already stands in a leaf for a
// daemon has its base beside it, whatever name it stepped aside under. Below the leaf it would be
// in its own way again.
func (h host) findBases(name, mode string) bases {
	own := h.unified
	if strings.HasSuffix(own, daemonSuffix) {
		own = filepath.Dir(own)
	}
	p := bases{Mode: mode, Unified: filepath.Join(own, name)}
	if mode == modeV1 {
		p.Legacy = map[string]string{}
		for c, dir := range h.legacy {
			p.Legacy[c] = filepath.Join(dir, name)
		}
	}
	return p
}

// daemonSuffix ends the name of the leaf that chatd itself steps aside to.
const daemonSuffix = ".daemon"

// reuse prefers the recorded directories that are still there and really cgroups.
func (p bases) reuse(old bases, name string) bases {
	if old.Mode != p.Mode {
		return p
	}
	if isCgroup(old.Unified, name, unix.CGROUP2_SUPER_MAGIC) {
		p.Unified = old.Unified
	}
	for c := range p.Legacy {
		if isCgroup(old.Legacy[c], name, unix.CGROUP_SUPER_MAGIC) {
			p.Legacy[c] = old.Legacy[c]
		}
	}
	return p
}

func isCgroup(dir, name string, magic int64) bool {
	var s unix.Statfs_t
	return filepath.IsAbs(dir) && filepath.Base(dir) == name && unix.Statfs(dir, &s) == nil &&
		int64(s.Type) == magic
}

func loadBases(file string) (bases, error) {
	var p bases
	if file == "" {
		return p, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return bases{}, fmt.Errorf("cannot read the cgroups in use from %s (remove it only when no session is alive): %w", file, err)
	}
	return p, nil
}

// save replaces the file in one step, so that a crash leaves the old or the new.
func (p bases) save(file string) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the cgroups in use: %w", err)
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot write the cgroups in use: %w", err)
	}
	if err := os.Rename(tmp, file); err != nil {
		return errors.Join(fmt.Errorf("cannot write the cgroups in use: %w", err), os.Remove(tmp))
	}
	return nil
}

// createBase makes the bases. They are 0700 because cgroup files are
// world-readable and would tell one chat of another's processes.
func (f *FS) createBase() error {
	if f.mode == modeV2 {
		own := f.bases.own()
		if err := f.delegate(own, optionalIO(own)); err != nil {
			return err
		}
	}
	for _, c := range furtherLegacy {
		if dir := f.bases.Legacy[c]; dir != "" && cgroupfs.Make(dir) != nil {
			delete(f.bases.Legacy, c) // a container may see it and not write there
		}
	}
	for _, dir := range append(f.legacyBases(), f.bases.Unified) {
		if err := cgroupfs.Make(dir); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("cannot close the base cgroup to others: %w", err)
		}
	}
	if f.mode == modeV2 {
		return enable(f.bases.Unified, optionalIO(f.bases.Unified))
	}
	return nil
}

// RemoveBase takes away the empty base directories and the state file, as
// uninstalling does. It is [chat.ErrBusy] while a chat has a tree, or there is a front.
func (f *FS) RemoveBase() error {
	if err := f.removeOwn(); err != nil {
		return err
	}
	for _, dir := range append(f.legacyBases(), f.bases.Unified) {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			return fmt.Errorf("cannot remove the base cgroup %s: %w", dir, errors.Join(chat.ErrBusy, err))
		}
	}
	if f.o.StateFile == "" {
		return nil
	}
	if err := os.Remove(f.o.StateFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the cgroup state file: %w", err)
	}
	return nil
}

func (f *FS) legacyBases() []string { return slices.Sorted(maps.Values(f.bases.Legacy)) }

// delegate gives the children of own the controllers. A cgroup that has
// processes cannot do so, except the root: then chatd steps aside once.
func (f *FS) delegate(own string, want []string) error {
	err := enable(own, want)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	pids, err := cgroupfs.Processes(own)
	if err != nil {
		return err
	}
	if !slices.Contains(pids, os.Getpid()) {
		return inTheWay(own, pids)
	}
	leaf := filepath.Join(own, f.o.Name+daemonSuffix)
	back, err := stepAside(own, leaf)
	if err != nil {
		return err
	}
	if err = enable(own, want); errors.Is(err, unix.EBUSY) {
		pids, perr := cgroupfs.Processes(own)
		err = errors.Join(inTheWay(own, pids), perr)
	}
	if err != nil {
		return errors.Join(err, back())
	}
	return nil
}

func inTheWay(own string, pids []int) error {
	return fmt.Errorf("cannot give controllers to the children of %s: the processes %v are in it; move them to a cgroup below it: %w",
		own, pids, chat.ErrBusy)
}

// stepAside moves this process, all its threads, from own to leaf; back undoes it.
func stepAside(own, leaf string) (back func() error, err error) {
	if err := cgroupfs.Make(leaf); err != nil {
		return nil, err
	}
	me := strconv.Itoa(os.Getpid())
	if err := cgroupfs.Write(leaf, "cgroup.procs", me); err != nil {
		return nil, errors.Join(err, unix.Rmdir(leaf))
	}
	return func() error {
		if err := cgroupfs.Write(own, "cgroup.procs", me); err != nil {
			return err
		}
		return cgroupfs.Remove(leaf)
	}, nil
}

// optionalIO adds io to the controllers where the host offers it.
func optionalIO(dir string) []string {
	offered, err := words(filepath.Join(dir, "cgroup.controllers"))
	if err == nil && missing(offered, []string{"io"}) == nil {
		return append([]string{"io"}, controllers...)
	}
	return controllers
}

// enable adds to cgroup.subtree_control of dir what is not in it yet.
func enable(dir string, want []string) error {
	have, err := words(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	add := missing(have, want)
	if add == nil {
		return nil
	}
	return cgroupfs.Write(dir, "cgroup.subtree_control", "+"+strings.Join(add, " +"))
}
