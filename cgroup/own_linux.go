package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Own is a process of chatd's own, and the end of its cgroup's name.
type Own string

// The processes of chatd's own that have a cgroup.
const (
	// Front reads what callers write, and must not take the host's memory by it. With two chats it
	// has 25 MB; four commands that are read simultaneously take 280 MB for a moment (package
	// shell).
	Front Own = "front"
	// Egress carries the connections of all chats.
	Egress Own = "egress"
)

// Tools are the file tools of a chat, which are outside its other limits.
func Tools(id chat.ID) Own { return Own(toolsPrefix + id) }

const toolsPrefix = "tools-"

// Bounds of a process of chatd's own, and of the file tools of a chat.
const (
	ownMemory   = 1 << 30 // bytes; no swap
	ownTasks    = 512     // threads
	toolsMemory = 128 << 20
	toolsTasks  = 128
)

// Bound moves a process of chatd's own to a cgroup of its own beside the base, with a bound on
// memory and tasks. The kernel ends one that takes more, and nothing else. pid must be a child that
// nobody has collected, and that waits for what it is told.
func (f *FS) Bound(own Own, pid int) error {
	if f.beside == "" {
		return fmt.Errorf("cannot bound %s: %w", own, f.crowded)
	}
	for _, set := range f.ownLimits(own) {
		if err := cgroupfs.Make(set.dir); err != nil {
			return err
		}
		for file, value := range set.files {
			err := cgroupfs.Write(set.dir, file, value)
			if errors.Is(err, chat.ErrNotFound) && file == "memory.swap.max" {
				continue // the host counts no swap
			}
			if err != nil {
				return fmt.Errorf("cannot bound %s: %s: %w", own, file, err)
			}
		}
		if err := cgroupfs.Write(set.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cannot move %s to its cgroup: %w", own, err)
		}
	}
	return nil
}

// ownLimit is one directory of such a process, and what is written there.
type ownLimit struct {
	dir   string
	files map[string]string
}

func (f *FS) ownLimits(own Own) []ownLimit {
	memory, tasks := strconv.Itoa(ownMemory), strconv.Itoa(ownTasks)
	if strings.HasPrefix(string(own), toolsPrefix) {
		memory, tasks = strconv.Itoa(toolsMemory), strconv.Itoa(toolsTasks)
	}
	unified := filepath.Join(f.beside, f.o.Name+"."+string(own))
	if f.legacy == nil {
		return []ownLimit{{unified, map[string]string{
			"memory.max": memory, "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": tasks,
		}}}
	}
	legacy := func(controller string) string {
		return filepath.Join(filepath.Dir(f.legacy[controller]), f.o.Name+"."+string(own))
	}
	// With a swappiness of 0 it is not swapped out where memory and swap are not counted together.
	return []ownLimit{
		{legacy("memory"), map[string]string{"memory.limit_in_bytes": memory, "memory.swappiness": "0"}},
		{legacy("pids"), map[string]string{"pids.max": tasks}},
		{unified, nil},
	}
}

// Unbound takes a cgroup of [FS.Bound] away, unless a process is in it.
func (f *FS) Unbound(own Own) {
	for _, set := range f.ownLimits(own) {
		_ = unix.Rmdir(set.dir) // the next one who ends takes it away
	}
}

// removeOwn takes the cgroups of chatd's own processes away. It is [chat.ErrBusy] while one runs.
func (f *FS) removeOwn() error {
	names, err := filepath.Glob(filepath.Join(f.beside, f.o.Name+"."+toolsPrefix+"*"))
	if err != nil {
		return err
	}
	all := []Own{Front, Egress}
	for _, name := range names {
		all = append(all, Own(strings.TrimPrefix(filepath.Base(name), f.o.Name+".")))
	}
	for _, own := range all {
		for _, set := range f.ownLimits(own) {
			if err := unix.Rmdir(set.dir); err != nil && err != unix.ENOENT {
				return fmt.Errorf("cannot remove the cgroup of %s %s: %w", own, set.dir,
					errors.Join(chat.ErrBusy, err))
			}
		}
	}
	return nil
}

// besideOwn makes room for the front's cgroup in the cgroup that systemd started this process in.
// The process steps aside to a leaf of it, as [OpenFS] does. It is [chat.ErrUnsupported] where the
// cgroup is not this process's to divide (Delegate= of systemd.resource-control(5)).
func (u *Units) besideOwn() error {
	h, err := readHost()
	if err != nil {
		return err
	}
	own := h.findBases(u.o.Name, modeV2).own()
	mark := make([]byte, 8)
	n, err := unix.Getxattr(own, "trusted.delegate", mark)
	if err != nil || string(mark[:n]) != "1" {
		return fmt.Errorf("its unit has no Delegate=yes: %s is not chatd's to divide: %w", own,
			chat.ErrUnsupported)
	}
	if err := u.delegate(own, []string{"memory", "pids"}); err != nil {
		return err
	}
	u.beside = own
	return nil
}

// own is the cgroup that the base is in.
func (p bases) own() string { return filepath.Dir(p.Unified) }
