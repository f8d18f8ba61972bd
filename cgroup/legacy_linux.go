package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// legacy is the v1 half of the backend: <base>/<id> in memory, pids and cpu, in blkio where the
// chat has a bound on block I/O, and below memory one leaf a run. The session's processes are in
// <id> itself, which v1 allows, and so are the tasks of runs in the others. v1 counts a refused
// fork where the forking process is.
type legacy map[string]string // base by controller

func (g legacy) dir(controller string, id chat.ID, run string) string {
	dir := filepath.Join(g[controller], string(id))
	if run != "" {
		dir = filepath.Join(dir, runsDir, run)
	}
	return dir
}

// create makes the chat's v1 cgroups if need be.
func (g legacy) create(id chat.ID) error {
	for _, dir := range []string{
		g.dir("memory", id, ""), g.dir("pids", id, ""), g.dir("cpu", id, ""),
		filepath.Join(g.dir("memory", id, ""), runsDir),
	} {
		if err := cgroupfs.Make(dir); err != nil {
			return fmt.Errorf("cannot create the v1 cgroups of chat %s: %w", id, err)
		}
	}
	return nil
}

// set writes one limit of a controller.
func (g legacy) set(id chat.ID, controller, file string, value int64) error {
	return cgroupfs.Write(g.dir(controller, id, ""), file, strconv.FormatInt(value, 10))
}

// has reports whether the chat has a cgroup of a controller.
func (g legacy) has(controller string, id chat.ID) bool {
	_, err := os.Stat(g.dir(controller, id, ""))
	return g[controller] != "" && err == nil
}

func (g legacy) remove(id chat.ID) error {
	for c := range g {
		if err := cgroupfs.RemoveTree(g.dir(c, id, "")); err != nil {
			return err
		}
	}
	return nil
}

func (g legacy) createRun(id chat.ID, run string) error {
	if err := cgroupfs.Make(g.dir("memory", id, run)); err != nil {
		return fmt.Errorf("cannot create the v1 cgroup of run %s: %w", run, err)
	}
	return g.inheritSocketMemory(id, run)
}

// lendThread moves the calling thread, so that what it clones is born in the chat's cgroups of
// these controllers. "0" in a tasks file means the writer. To move itself a thread needs no lock
// against forks of its process. For any other pid the kernel takes that lock and waits for an RCU
// grace period. That is 10 to 20 ms on an idle machine.
func (g legacy) lendThread(id chat.ID, run string, controllers []string) error {
	for _, c := range controllers {
		dir := g.dir(c, id, "")
		if c == "memory" && run != "" {
			dir = g.dir(c, id, run)
		}
		if err := cgroupfs.Write(dir, "tasks", "0"); err != nil {
			return fmt.Errorf("cannot lend a thread to the v1 cgroups of chat %s: %w", id,
				cgroupfs.NotFound(err))
		}
	}
	return nil
}
