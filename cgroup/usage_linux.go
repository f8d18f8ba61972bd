package cgroup

import (
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Usage reads what the chat takes now and how often a limit said no, counted
// since Create. [chat.ErrNotFound] without the chat's tree.
func (f *FS) Usage(id chat.ID) (chat.Usage, error) {
	if err := checkID(id); err != nil {
		return chat.Usage{}, err
	}
	r := reader{f: f, id: id}
	u := r.usage(f.dir(id))
	u.Pids, u.Throttled = r.number("pids.current"), r.flat("cpu.stat", "nr_throttled")
	if f.legacy != nil {
		u.OOMKills += r.inRuns("memory.events", "oom_kill") + f.removedHits(id)
	}
	u.PidsRefused = r.refused()
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
	r := reader{f: f, id: id, run: run}
	u := r.usage(dir)
	if f.legacy != nil {
		pids, err := cgroupfs.Members(dir)
		u.Pids = r.keep(uint64(len(pids)), err)
	} else {
		u.Pids, u.PidsRefused = r.number("pids.current"), r.flat("pids.events", "max")
	}
	return u, r.done("run " + run)
}

// Hits counts what the chat's limits did: OOM kills in its session, not in its runs, and
// forks refused to the whole chat. It is cheap enough to be asked every few seconds.
// [chat.ErrNotFound] without the chat's tree.
func (f *FS) Hits(id chat.ID) (chat.LimitHits, error) {
	if err := checkID(id); err != nil {
		return chat.LimitHits{}, err
	}
	r := reader{f: f, id: id}
	h := chat.LimitHits{PidsRefused: r.refused()}
	if f.legacy != nil { // there the session is in the chat's own cgroup
		h.OOMKills = r.flat("memory.events", "oom_kill")
	} else {
		h.OOMKills = r.keep(cgroupfs.ReadFlat(f.dir(id, sessionLeaf), "memory.events", "oom_kill"))
	}
	return h, r.done("chat " + string(id))
}

// Unreclaimable is the memory of a chat, in bytes, that the kernel cannot take back without ending
// processes: all but its cache of files.
func (f *FS) Unreclaimable(id chat.ID) (uint64, error) {
	if err := checkID(id); err != nil {
		return 0, err
	}
	of := ""
	if f.legacy != nil { // whose statistics are of one cgroup, and with total_ of those below too
		of = "total_"
	}
	r := reader{f: f, id: id}
	all := r.number("memory.current")
	cache := r.flat("memory.stat", of+"inactive_file") + r.flat("memory.stat", of+"active_file")
	return all - min(all, cache), r.done("chat " + string(id))
}

// legacyFiles are the files of cgroup v1 that have what those of v2 have.
var legacyFiles = map[string]struct{ controller, file string }{
	"memory.max":      {"memory", "memory.limit_in_bytes"},
	"memory.swap.max": {"memory", "memory.memsw.limit_in_bytes"}, // memory and swap together
	"memory.current":  {"memory", "memory.usage_in_bytes"},
	"memory.peak":     {"memory", "memory.max_usage_in_bytes"},
	"memory.events":   {"memory", "memory.oom_control"},
	"memory.stat":     {"memory", "memory.stat"},
	"pids.max":        {"pids", "pids.max"},
	"pids.current":    {"pids", "pids.current"},
	"pids.events":     {"pids", "pids.events"},
	"cpu.max":         {"cpu", "cpu.cfs_quota_us"}, // the period has a file of its own
	"cpu.stat":        {"cpu", "cpu.stat"},
}

// file is where the chat, or its run if one is named, has what cgroup v2 calls name.
func (f *FS) file(id chat.ID, run, name string) (dir, file string) {
	if f.legacy != nil {
		l := legacyFiles[name]
		return f.legacy.dir(l.controller, id, run), l.file
	}
	if run != "" {
		return f.dir(id, runsDir, run), name
	}
	return f.dir(id), name
}

// reader reads many files of a chat, or of its run if one is named, and keeps the first error. The
// files have their names of cgroup v2.
type reader struct {
	f   *FS
	id  chat.ID
	run string
	err error
}

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

func (r *reader) flat(name, key string) uint64 {
	dir, file := r.f.file(r.id, r.run, name)
	return r.keep(cgroupfs.ReadFlat(dir, file, key))
}

func (r *reader) number(name string) uint64 {
	return r.keep(cgroupfs.ReadNumber(r.f.file(r.id, r.run, name)))
}

// usage is CPU time and memory. The cgroup2 tree at dir counts CPU time with or without a
// controller.
func (r *reader) usage(dir string) chat.Usage {
	cpu := r.keep(cgroupfs.ReadFlat(dir, "cpu.stat", "usage_usec"))
	return chat.Usage{
		CPU:         chat.Duration(time.Duration(cpu) * time.Microsecond),
		MemoryBytes: r.number("memory.current"), MemoryPeak: r.number("memory.peak"),
		OOMKills: r.flat("memory.events", "oom_kill"),
	}
}

// inRuns sums a counter over the runs that are there.
func (r *reader) inRuns(name, key string) (sum uint64) {
	runs, err := r.f.Runs(r.id)
	r.keep(0, err)
	for _, run := range runs {
		dir, file := r.f.file(r.id, run, name)
		sum += r.passing(cgroupfs.ReadFlat(dir, file, key))
	}
	return sum
}

// refused counts the forks refused to a chat. Under cgroup v2 kernels before 6.11 count one in the
// leaf of who forked, later ones where the limit is.
func (r *reader) refused() uint64 {
	sum := r.flat("pids.events", "max")
	if r.f.legacy != nil {
		return sum
	}
	sum += r.passing(cgroupfs.ReadFlat(r.f.dir(r.id, sessionLeaf), "pids.events", "max"))
	return sum + r.inRuns("pids.events", "max") + r.f.removedHits(r.id)
}

// passing takes no offence at a leaf that went away while it was read.
func (r *reader) passing(v uint64, err error) uint64 {
	if errors.Is(err, chat.ErrNotFound) {
		return 0
	}
	return r.keep(v, err)
}

// removedHits are those of runs that were removed, as far as the kernel counts them only there: OOM
// kills under cgroup v1, and under v2 the forks refused by kernels before 6.11.
func (f *FS) removedHits(id chat.ID) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.removed[id]
}
