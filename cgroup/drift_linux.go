package cgroup

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Drift names the limits, by their keys, that the cgroup of a living chat does not have as l says:
// the kernel refused one, or somebody else wrote to it. [chat.ErrNotFound] without the chat's tree.
//
// A limit that is lifted for a moment, as for processes that end, is not a drift.
func (f *FS) Drift(id chat.ID, l chat.Limits) (keys []string, err error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	defer f.lock(id).Unlock()
	f.mu.Lock()
	lent, was := f.lent[id]
	f.mu.Unlock()
	if was && time.Since(lent) < 2*lendTime {
		return nil, nil
	}
	if _, err := os.Stat(f.dir(id)); err != nil {
		return nil, cgroupfs.NotFound(err)
	}
	for _, d := range []struct {
		layer chat.LayerName
		look  func(chat.ID, chat.Limits) ([]string, error)
	}{
		{chat.LayerMemory, f.driftMemory}, {chat.LayerPids, f.driftPids},
		{chat.LayerCPU, f.driftCPU}, {"", f.driftIO},
	} {
		if f.without(d.layer) {
			continue
		}
		found, lerr := d.look(id, l)
		keys, err = append(keys, found...), errors.Join(err, lerr)
	}
	return keys, err
}

func (f *FS) driftMemory(id chat.ID, l chat.Limits) (keys []string, err error) {
	dir, memory, swap, swapMax := f.dir(id), "memory.max", "memory.swap.max", l.SwapMax
	if f.legacy != nil { // there it is memory and swap together
		dir = f.legacy.dir("memory", id, "")
		memory, swap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
		swapMax = uint64(*signed(l.MemoryMax)) + uint64(*signed(l.SwapMax))
	}
	has, err := cgroupfs.ReadNumber(dir, memory)
	if err == nil && pages(has) != pages(l.MemoryMax) {
		keys = append(keys, "memory_max")
	}
	both, serr := cgroupfs.ReadNumber(dir, swap)
	switch {
	case errors.Is(serr, chat.ErrNotFound): // without swap accounting
	case serr != nil:
		err = errors.Join(err, serr)
	case pages(both) != pages(swapMax):
		keys = append(keys, "swap_max")
	}
	return keys, err
}

// pages is a limit as the kernel keeps it: in whole pages, and with one largest value.
func pages(n uint64) uint64 { return min(n, math.MaxInt64) / uint64(os.Getpagesize()) }

func (f *FS) driftPids(id chat.ID, l chat.Limits) (keys []string, err error) {
	dir := f.dir(id)
	if f.legacy != nil {
		dir = f.legacy.dir("pids", id, "")
	}
	has, err := cgroupfs.ReadNumber(dir, "pids.max")
	if err == nil && has != l.PidsMax {
		keys = append(keys, "pids_max")
	}
	return keys, err
}

func (f *FS) driftCPU(id chat.ID, l chat.Limits) (keys []string, err error) {
	dir, file := f.quotaFile(id)
	text, err := cgroupfs.Read(dir, file)
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if f.legacy != nil && err == nil {
		text, err = cgroupfs.Read(dir, "cpu.cfs_period_us")
		period = strings.TrimSpace(string(text))
	}
	if err != nil {
		return nil, err
	}
	if !isShare(quota, period, l) {
		keys = append(keys, "cpu_quota")
	}
	return keys, nil
}

// isShare compares shares, within the hundredth part by which systemd rounds.
func isShare(quota, period string, l chat.Limits) bool {
	has, qerr := strconv.ParseInt(quota, 10, 64) // "max" and -1 are none
	of, perr := strconv.ParseInt(period, 10, 64)
	if qerr != nil || perr != nil || has <= 0 || of <= 0 {
		return false
	}
	share := float64(has) / float64(of)
	want := l.CPUQuota.D().Seconds() / l.CPUPeriod.D().Seconds()
	return math.Abs(share-want) <= want/100
}

// driftIO compares what the kernel has for each disk with what is asked. It has no line for a disk
// without a bound.
func (f *FS) driftIO(id chat.ID, l chat.Limits) (keys []string, err error) {
	disks := f.ioDisks(l)
	for i, b := range ioBounds(l) {
		key := [...]string{"io_read_bps", "io_write_bps", "io_read_iops", "io_write_iops"}[i]
		has, rerr := f.ioBoundsOf(id, b)
		err = errors.Join(err, rerr)
		want := map[string]string{}
		for _, disk := range disks {
			if b.value > 0 {
				want[disk] = strconv.FormatUint(b.value, 10)
			}
		}
		if rerr == nil && has != nil && !sameBounds(has, want) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func sameBounds(has, want map[string]string) bool {
	for disk, value := range has {
		if want[disk] != value {
			return false
		}
	}
	return len(has) == len(want)
}

// ioBoundsOf is one kind of bound by disk; nil where the chat has no such file.
func (f *FS) ioBoundsOf(id chat.ID, b ioBound) (map[string]string, error) {
	dir, file := f.dir(id), "io.max"
	if f.legacy != nil {
		if f.bases.Legacy["blkio"] == "" || !f.legacy.has("blkio", id) {
			return nil, nil
		}
		dir, file = f.legacy.dir("blkio", id, ""), b.legacy
	}
	text, err := cgroupfs.Read(dir, file)
	if errors.Is(err, chat.ErrNotFound) {
		return nil, nil
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		for _, w := range words[min(1, len(words)):] {
			value, of := strings.CutPrefix(w, b.unified+"=")
			if (of || f.legacy != nil) && value != "max" && strings.Contains(words[0], ":") {
				all[words[0]] = value
			}
		}
	}
	return all, err
}

// Unreclaimable is the memory of a chat, in bytes, that the kernel cannot take back without ending
// processes: all but its cache of files.
func (f *FS) Unreclaimable(id chat.ID) (uint64, error) {
	if err := checkID(id); err != nil {
		return 0, err
	}
	dir, current, inactive, active := f.dir(id), "memory.current", "inactive_file", "active_file"
	if f.legacy != nil { // whose statistics are of one cgroup, and with total_ of those below too
		dir, current = f.legacy.dir("memory", id, ""), "memory.usage_in_bytes"
		inactive, active = "total_inactive_file", "total_active_file"
	}
	r := reader{}
	all := r.number(dir, current)
	cache := r.flat(dir, "memory.stat", inactive) + r.flat(dir, "memory.stat", active)
	return all - min(all, cache), r.done("chat " + string(id))
}
