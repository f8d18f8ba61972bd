package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// legacy is the v1 half of the backend: <base>/<id> in memory, pids and cpu, and
// below memory one leaf a run. The session's processes are in <id> itself, which
// v1 allows, and so are the tasks of runs in pids and cpu: v1 counts a refused
// fork where the forking process is.
type legacy struct {
	subsystems []cgroup1.Subsystem
	points     map[string]string
	bases      map[string]string

	mu sync.Mutex
	// oom keeps the OOM kills of removed runs, which v1 counts in the leaf only.
	oom map[chat.ID]uint64
}

func newLegacy(h host, p places) *legacy {
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

// limit makes the v1 cgroups of a chat if need be and sets memory, swap and pids.
func (g *legacy) limit(id chat.ID, l chat.Limits, without func(chat.LayerName) bool) error {
	cg, err := cgroup1.New(g.path(id, ""), &specs.LinuxResources{}, g.hierarchy(cgroup1.Memory, cgroup1.Pids, cgroup1.Cpu))
	if err == nil && !without(chat.LayerPids) {
		err = cg.Update(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: signed(l.PidsMax)}})
	}
	if err == nil && !without(chat.LayerMemory) {
		err = g.limitMemory(cg, id, l)
	}
	if err == nil {
		err = mkdir(filepath.Join(g.dir("memory", id, ""), runsDir))
	}
	return g.limitError(id, err)
}

// limitMemory keeps memory+swap at or above memory in between, or the kernel says
// EINVAL. cgroup1 (v3.1.3) means to, but exchanges the wrong two settings, so it
// gets one at a time.
func (g *legacy) limitMemory(cg cgroup1.Cgroup, id chat.ID, l chat.Limits) error {
	steps := []*specs.LinuxMemory{{Limit: signed(l.MemoryMax)}}
	if both := g.memorySwap(l); both != nil {
		now, err := readNumber(g.dir("memory", id, ""), "memory.limit_in_bytes")
		if err != nil {
			return err
		}
		steps = append(steps, &specs.LinuxMemory{Swap: both})
		if now <= uint64(*both) {
			slices.Reverse(steps)
		}
	}
	for _, m := range steps {
		if err := cg.Update(&specs.LinuxResources{Memory: m}); err != nil {
			return err
		}
	}
	return g.limitSocketMemory(id, l)
}

// socketMemory bounds what lies in socket buffers, which v1 does not charge to
// memory.limit_in_bytes: without it a chat held 1 GiB in the queues of UDP sockets
// under a limit of 256 MiB (tried on 6.18). The file is named for TCP and counts
// every protocol.
const socketMemory = "memory.kmem.tcp.limit_in_bytes"

func (g *legacy) limitSocketMemory(id chat.ID, l chat.Limits) error {
	dir := g.dir("memory", id, "")
	if _, err := os.Stat(filepath.Join(dir, socketMemory)); err != nil {
		return nil // a kernel built without it
	}
	return write(dir, socketMemory, strconv.FormatUint(l.MemoryMax/8, 10))
}

// inheritSocketMemory gives a run's leaf the chat's limit. The sum is bounded
// anyway, but the kernel counts only for a cgroup that has had a limit written.
func (g *legacy) inheritSocketMemory(id chat.ID, run string) error {
	text, err := readFile(g.dir("memory", id, ""), socketMemory)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return write(g.dir("memory", id, run), socketMemory, strings.TrimSpace(string(text)))
}

// memorySwap is the limit of memory and swap together, as v1 has it; nil without
// swap accounting, when the kernel has no such file.
func (g *legacy) memorySwap(l chat.Limits) *int64 {
	if _, err := os.Stat(filepath.Join(g.bases["memory"], "memory.memsw.limit_in_bytes")); err != nil {
		return nil
	}
	return signed(uint64(*signed(l.MemoryMax)) + uint64(*signed(l.SwapMax)))
}

func (g *legacy) limitCPU(id chat.ID, l chat.Limits) error {
	quota, period := cpuMicros(l)
	return g.setCPU(id, &specs.LinuxCPU{Quota: &quota, Period: &period})
}

func (g *legacy) liftCPU(id chat.ID) error {
	none := int64(-1)
	return g.setCPU(id, &specs.LinuxCPU{Quota: &none})
}

func (g *legacy) setCPU(id chat.ID, r *specs.LinuxCPU) error {
	cg, err := g.load(id, "", cgroup1.Cpu)
	if err != nil {
		return err
	}
	return g.limitError(id, cg.Update(&specs.LinuxResources{CPU: r}))
}

func (g *legacy) limitError(id chat.ID, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		err = errors.Join(chat.ErrBusy, err)
	}
	return fmt.Errorf("cannot limit chat %s: %w", id, err)
}

func (g *legacy) remove(id chat.ID) error {
	for _, c := range controllers {
		if err := rmTree(g.dir(c, id, "")); err != nil {
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
	kills, err := g.oomKills(g.dir("memory", id, run))
	if err != nil && !errors.Is(err, chat.ErrNotFound) {
		return err
	}
	if err := rmdir(g.dir("memory", id, run)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if kills > 0 {
		g.oom[id] += kills
	}
	return nil
}

func (g *legacy) oomKills(dir string) (uint64, error) {
	return readFlat(dir, "memory.oom_control", "oom_kill")
}

// lendThread moves the calling thread, so that what it clones is born in the
// chat's cgroups of these controllers. "0" in a tasks file means the writer; to
// move itself a thread needs no lock against forks of its process, which the
// kernel takes for any other pid and waits for an RCU grace period with: that
// is 10 to 20 ms on an idle machine.
func (g *legacy) lendThread(id chat.ID, run string, controllers []string) error {
	for _, c := range controllers {
		dir := g.dir(c, id, "")
		if c == "memory" && run != "" {
			dir = g.dir(c, id, run)
		}
		if err := write(dir, "tasks", "0"); err != nil {
			return fmt.Errorf("cannot lend a thread to the v1 cgroups of chat %s: %w", id, notFound(err))
		}
	}
	return nil
}

// hasQuota reports whether the chat's CPU time is bounded now.
func (g *legacy) hasQuota(id chat.ID) (bool, error) {
	b, err := readFile(g.dir("cpu", id, ""), "cpu.cfs_quota_us")
	if err != nil {
		return false, err
	}
	return strings.TrimSpace(string(b)) != "-1", nil
}
