package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/containerd/cgroups/v3/cgroup2/stats"
	"golang.org/x/sys/unix"
)

// Usage reads what the chat takes now and how often a limit said no, counted
// since Create. [chat.ErrNotFound] without the chat's tree. MemoryPeak is 0 on
// kernels before 5.19 in cgroup v2.
func (f *FS) Usage(id chat.ID) (chat.Usage, error) {
	if err := checkID(id); err != nil {
		return chat.Usage{}, err
	}
	r := reader{}
	if f.legacy != nil {
		return f.legacyUsage(id)
	}
	u := r.stat(f.bases.Unified, f.group(id))
	u.PidsRefused = r.refused(f.dir(id)) + f.removedRefusals(id)
	return u, r.done("chat " + string(id))
}

func (f *FS) removedRefusals(id chat.ID) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refusals[id]
}

func (f *FS) legacyUsage(id chat.ID) (chat.Usage, error) {
	r := reader{}
	u := chat.Usage{CPU: r.cpu(f.dir(id))}
	mem, cpu := f.legacy.dir("memory", id, ""), f.legacy.dir("cpu", id, "")
	r.legacyMemory(&u, mem)
	u.OOMKills += r.legacyKills(f.legacy, id, mem)
	pids := f.legacy.dir("pids", id, "")
	u.Pids, u.PidsRefused = r.number(pids, "pids.current"), r.flat(pids, "pids.events", "max")
	u.Throttled = r.flat(cpu, "cpu.stat", "nr_throttled")
	return u, r.done("chat " + string(id))
}

// RunUsage reads what one run took; it stays readable after the run's processes
// ended, until [FS.RemoveRun]. PidsRefused is known per run only to cgroup v2 on
// kernels before 6.11, Throttled never: both limits are the chat's.
func (f *FS) RunUsage(id chat.ID, run string) (chat.Usage, error) {
	if err := errors.Join(checkID(id), checkRun(run)); err != nil {
		return chat.Usage{}, err
	}
	dir := f.dir(id, runsDir, run)
	r := reader{}
	if f.legacy != nil {
		u := chat.Usage{CPU: r.cpu(dir), Pids: r.members(dir)}
		r.legacyMemory(&u, f.legacy.dir("memory", id, run))
		return u, r.done("run " + run)
	}
	u := r.stat(f.dir(id, runsDir), run)
	u.Throttled = 0 // the quota is the chat's
	u.PidsRefused = r.flat(dir, "pids.events", "max")
	return u, r.done("run " + run)
}

// Hits counts what the chat's limits did: OOM kills in its session, not in its runs, and
// forks refused to the whole chat. It is cheap enough to be asked every few seconds.
// [chat.ErrNotFound] without the chat's tree.
func (f *FS) Hits(id chat.ID) (chat.LimitHits, error) {
	if err := checkID(id); err != nil {
		return chat.LimitHits{}, err
	}
	r := reader{}
	h := chat.LimitHits{}
	if f.legacy != nil {
		h.OOMKills = r.flat(f.legacy.dir("memory", id, ""), "memory.oom_control", "oom_kill")
		h.PidsRefused = r.flat(f.legacy.dir("pids", id, ""), "pids.events", "max")
	} else {
		h.OOMKills = r.flat(f.dir(id, sessionLeaf), "memory.events", "oom_kill")
		h.PidsRefused = r.refused(f.dir(id)) + f.removedRefusals(id)
	}
	return h, r.done("chat " + string(id))
}

// reader reads many files and keeps the first error.
type reader struct{ err error }

func (r *reader) keep(v uint64, err error) uint64 {
	if r.err == nil {
		r.err = err
	}
	return v
}

func (r *reader) done(of string) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("cannot read the usage of %s: %w", of, r.err)
}

func (r *reader) flat(dir, file, key string) uint64 { return r.keep(cgroupfs.ReadFlat(dir, file, key)) }

func (r *reader) number(dir, file string) uint64 { return r.keep(cgroupfs.ReadNumber(dir, file)) }

// cpu reads the cgroup2 tree, which counts CPU time with or without a controller.
func (r *reader) cpu(dir string) chat.Duration {
	return chat.Duration(time.Duration(r.flat(dir, "cpu.stat", "usage_usec")) * time.Microsecond)
}

// stat reads what the kernel counts and the events of one cgroup below parent.
// The library takes a missing file for an empty one, but no events at all are
// those of a cgroup that is gone.
func (r *reader) stat(parent, group string) chat.Usage {
	m, err := cgroup2.Load("/"+group, cgroup2.WithMountpoint(parent))
	var s *stats.Metrics
	if err == nil {
		s, err = m.StatFiltered(cgroup2.StatPids | cgroup2.StatCPU | cgroup2.StatMemory | cgroup2.StatMemoryEvents)
	}
	if err == nil && s.MemoryEvents == nil || errors.Is(err, unix.ENODEV) {
		err = errors.Join(chat.ErrNotFound, err)
	}
	if r.keep(0, err); err != nil {
		return chat.Usage{}
	}
	return chat.Usage{
		CPU:         chat.Duration(time.Duration(s.CPU.UsageUsec) * time.Microsecond),
		MemoryBytes: s.Memory.Usage, MemoryPeak: s.Memory.MaxUsage, OOMKills: s.MemoryEvents.OomKill,
		Pids: s.Pids.Current, Throttled: s.CPU.NrThrottled,
	}
}

func (r *reader) legacyMemory(u *chat.Usage, dir string) {
	u.MemoryBytes = r.number(dir, "memory.usage_in_bytes")
	u.MemoryPeak = r.number(dir, "memory.max_usage_in_bytes")
	u.OOMKills = r.flat(dir, "memory.oom_control", "oom_kill")
}

// legacyKills sums the kills of the runs, those that are there and those removed.
func (r *reader) legacyKills(g *legacy, id chat.ID, dir string) uint64 {
	entries, err := os.ReadDir(filepath.Join(dir, runsDir))
	r.keep(0, cgroupfs.NotFound(err))
	g.mu.Lock()
	sum := g.oom[id]
	g.mu.Unlock()
	for _, e := range entries {
		if e.IsDir() {
			sum += r.passing(cgroupfs.ReadFlat(g.dir("memory", id, e.Name()), "memory.oom_control",
				"oom_kill"))
		}
	}
	return sum
}

// refused sums pids.events over the tree: kernels before 6.11 count a refused
// fork in the leaf of who forked, later ones where the limit is.
func (r *reader) refused(dir string) uint64 {
	sum := r.flat(dir, "pids.events", "max")
	sum += r.passing(cgroupfs.ReadFlat(filepath.Join(dir, sessionLeaf), "pids.events", "max"))
	runs, err := os.ReadDir(filepath.Join(dir, runsDir))
	r.keep(0, cgroupfs.NotFound(err))
	for _, e := range runs {
		if e.IsDir() {
			sum += r.passing(cgroupfs.ReadFlat(filepath.Join(dir, runsDir, e.Name()), "pids.events", "max"))
		}
	}
	return sum
}

// passing takes no offence at a leaf that went away while it was read.
func (r *reader) passing(v uint64, err error) uint64 {
	if errors.Is(err, chat.ErrNotFound) {
		return 0
	}
	return r.keep(v, err)
}

func (r *reader) members(dir string) uint64 {
	pids, err := cgroupfs.Members(dir)
	return r.keep(uint64(len(pids)), err)
}
