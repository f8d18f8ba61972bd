package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// legacy is the v1 half of the backend: <base>/<id> in memory, pids and cpu, in blkio where the
// chat has a bound on block I/O, and below memory one leaf a run. The session's processes are in
// <id> itself, which v1 allows, and so are the tasks of runs in the others. v1 counts a refused
// fork where the forking process is.
type legacy struct {
	subsystems []cgroup1.Subsystem
	points     map[string]string
	bases      map[string]string

	mu sync.Mutex
	// oom keeps the OOM kills of removed runs, which v1 counts in the leaf only.
	oom map[chat.ID]uint64
}

func newLegacy(h host, p bases) *legacy {
	root := func(c string) string { return filepath.Dir(h.points[c]) }
	return &legacy{
		subsystems: []cgroup1.Subsystem{
			cgroup1.NewMemory(root("memory"), cgroup1.OptionalSwap()),
			cgroup1.NewPids(root("pids")),
			cgroup1.NewCpu(root("cpu")),
		},
		points: h.points, bases: p.Legacy, oom: map[chat.ID]uint64{},
	}
}

// path is what cgroup1 asks for: relative to the controller's mount, and the run
// only in memory.
func (g *legacy) path(id chat.ID, run string) cgroup1.Path {
	return func(name cgroup1.Name) (string, error) {
		rel, err := filepath.Rel(g.points[string(name)], g.dir(string(name), id, ""))
		if err != nil {
			return "", fmt.Errorf("cannot find the v1 cgroup %s: %w", name, err)
		}
		if name == cgroup1.Memory && run != "" {
			rel = filepath.Join(rel, runsDir, run)
		}
		return "/" + rel, nil
	}
}

func (g *legacy) dir(controller string, id chat.ID, run string) string {
	dir := filepath.Join(g.bases[controller], string(id))
	if run != "" {
		dir = filepath.Join(dir, runsDir, run)
	}
	return dir
}

func (g *legacy) hierarchy(names ...cgroup1.Name) cgroup1.InitOpts {
	return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		var some []cgroup1.Subsystem
		for _, s := range g.subsystems {
			for _, n := range names {
				if s.Name() == n {
					some = append(some, s)
				}
			}
		}
		return some, nil
	})
}

// load opens the cgroups that are there. cgroup1 passes over a missing one, and a
// process in the others would have one limit less: all or nothing.
func (g *legacy) load(id chat.ID, run string, names ...cgroup1.Name) (cgroup1.Cgroup, error) {
	cg, err := cgroup1.Load(g.path(id, run), g.hierarchy(names...))
	if errors.Is(err, cgroup1.ErrCgroupDeleted) || err == nil && len(cg.Subsystems()) != len(names) {
		return nil, fmt.Errorf("cannot find the v1 cgroups of chat %s: %w", id, chat.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the v1 cgroups of chat %s: %w", id, err)
	}
	return cg, nil
}

// create makes the chat's v1 cgroups if need be.
func (g *legacy) create(id chat.ID) error {
	all := g.hierarchy(cgroup1.Memory, cgroup1.Pids, cgroup1.Cpu)
	if _, err := cgroup1.New(g.path(id, ""), &specs.LinuxResources{}, all); err != nil {
		return fmt.Errorf("cannot create the v1 cgroups of chat %s: %w", id, err)
	}
	return cgroupfs.Make(filepath.Join(g.dir("memory", id, ""), runsDir))
}

// update writes limits of one controller.
func (g *legacy) update(id chat.ID, name cgroup1.Name, r *specs.LinuxResources) error {
	cg, err := g.load(id, "", name)
	if err != nil {
		return err
	}
	return cg.Update(r)
}

// has reports whether the chat has a cgroup of a controller.
func (g *legacy) has(controller string, id chat.ID) bool {
	if g.bases[controller] == "" {
		return false
	}
	_, err := os.Stat(g.dir(controller, id, ""))
	return err == nil
}

func (g *legacy) remove(id chat.ID) error {
	for _, c := range allLegacy() {
		if g.bases[c] == "" {
			continue
		}
		if err := cgroupfs.RemoveTree(g.dir(c, id, "")); err != nil {
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.oom, id)
	return nil
}

func (g *legacy) createRun(id chat.ID, run string) error {
	_, err := cgroup1.New(g.path(id, run), &specs.LinuxResources{}, g.hierarchy(cgroup1.Memory))
	if err != nil {
		return fmt.Errorf("cannot create the v1 cgroup of run %s: %w", run, err)
	}
	return g.inheritSocketMemory(id, run)
}

func (g *legacy) removeRun(id chat.ID, run string) error {
	kills, err := cgroupfs.ReadFlat(g.dir("memory", id, run), "memory.oom_control", "oom_kill")
	if err != nil && !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	if err := cgroupfs.Remove(g.dir("memory", id, run)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kills > 0 {
		g.oom[id] += kills
	}
	return nil
}

// lendThread moves the calling thread, so that what it clones is born in the chat's cgroups of
// these controllers. "0" in a tasks file means the writer. To move itself a thread needs no lock
// against forks of its process. For any other pid the kernel takes that lock and waits for an RCU
// grace period. That is 10 to 20 ms on an idle machine.
func (g *legacy) lendThread(id chat.ID, run string, controllers []string) error {
	for _, c := range controllers {
		dir := g.dir(c, id, "")
		if c == "memory" && run != "" {
			dir = g.dir(c, id, run)
		}
		if err := cgroupfs.Write(dir, "tasks", "0"); err != nil {
			return fmt.Errorf("cannot lend a thread to the v1 cgroups of chat %s: %w", id, cgroupfs.NotFound(err))
		}
	}
	return nil
}

// hasQuota reports whether the chat's CPU time is bounded now.
func (g *legacy) hasQuota(id chat.ID) (bool, error) {
	b, err := cgroupfs.Read(g.dir("cpu", id, ""), "cpu.cfs_quota_us")
	if err != nil {
		return false, err
	}
	return strings.TrimSpace(string(b)) != "-1", nil
}
