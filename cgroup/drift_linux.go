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
	swap := l.SwapMax
	if f.legacy != nil { // there it is memory and swap together
		swap = uint64(*signed(l.MemoryMax)) + uint64(*signed(l.SwapMax))
	}
	page := uint64(os.Getpagesize())
	for _, n := range []struct {
		layer      chat.LayerName
		key, file  string
		want, unit uint64 // the kernel keeps whole units, and has one largest value
	}{
		{chat.LayerMemory, "memory_max", "memory.max", l.MemoryMax, page},
		{chat.LayerMemory, "swap_max", "memory.swap.max", swap, page},
		{chat.LayerPids, "pids_max", "pids.max", l.PidsMax, 1},
	} {
		if f.without(n.layer) {
			continue
		}
		has, rerr := cgroupfs.ReadNumber(f.file(id, "", n.file))
		switch {
		case n.key == "swap_max" && errors.Is(rerr, chat.ErrNotFound): // without swap accounting
		case rerr != nil:
			err = errors.Join(err, rerr)
		case min(has, math.MaxInt64)/n.unit != min(n.want, math.MaxInt64)/n.unit:
			keys = append(keys, n.key)
		}
	}
	if !f.without(chat.LayerCPU) {
		quota, period, rerr := f.quota(id)
		err = errors.Join(err, rerr)
		if rerr == nil && !isShare(quota, period, l) {
			keys = append(keys, "cpu_quota")
		}
	}
	found, rerr := f.driftIO(id, l)
	return append(keys, found...), errors.Join(err, rerr)
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
		if !f.legacy.has("blkio", id) {
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
