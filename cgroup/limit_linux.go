package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// LimitCPU sets the CPU quota, and nothing else. It is a step of its own because
// a session needs three times as long to its prompt under the quota (tried).
// [chat.ErrNotFound] without the chat's tree.
func (f *FS) LimitCPU(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return f.limitCPU(id, l)
}

// Limit sets all limits of a chat that may be alive. Memory below what is in use
// makes the kernel reclaim, then end processes (cgroup v2), or refuse, which is
// [chat.ErrBusy] (cgroup v1). Pids below what is there only stops new ones.
func (f *FS) Limit(id chat.ID, l chat.Limits) error {
	if err := errors.Join(checkID(id), l.Validate()); err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	if _, err := os.Stat(f.dir(id)); err != nil {
		return fmt.Errorf("cannot limit chat %s: %w", id, notFound(err))
	}
	if err := f.limit(id, l); err != nil {
		return err
	}
	return f.limitCPU(id, l)
}

// limit sets memory, swap and pids.
func (f *FS) limit(id chat.ID, l chat.Limits) error {
	if f.legacy != nil {
		return f.legacy.limit(id, l, f.without)
	}
	var r cgroup2.Resources
	if !f.without(chat.LayerMemory) {
		r.Memory = &cgroup2.Memory{Max: signed(l.MemoryMax)}
		// Without swap accounting (swapaccount=0) the file is not there; Probe tells.
		if _, err := os.Stat(filepath.Join(f.dir(id), "memory.swap.max")); err == nil {
			r.Memory.Swap = signed(l.SwapMax)
		}
	}
	if !f.without(chat.LayerPids) {
		r.Pids = &cgroup2.Pids{Max: *signed(l.PidsMax)}
	}
	return f.update(id, &r)
}

func (f *FS) limitCPU(id chat.ID, l chat.Limits) error {
	if f.without(chat.LayerCPU) {
		return nil
	}
	if f.legacy != nil {
		return f.legacy.limitCPU(id, l)
	}
	quota, period := cpuMicros(l)
	return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}})
}

// liftCPU takes the quota away again: the dying need CPU time to die.
func (f *FS) liftCPU(id chat.ID) error {
	if f.legacy != nil {
		return f.legacy.liftCPU(id)
	}
	return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(nil, nil)}})
}

func (f *FS) update(id chat.ID, r *cgroup2.Resources) error {
	m, err := cgroup2.Load("/"+f.group(id), cgroup2.WithMountpoint(f.places.Unified))
	if err == nil {
		err = m.Update(r)
	}
	if err != nil {
		return fmt.Errorf("cannot limit chat %s: %w", id, notFound(err))
	}
	return nil
}

// cpuMicros is the quota and the period in the kernel's unit.
func cpuMicros(l chat.Limits) (quota int64, period uint64) {
	return l.CPUQuota.D().Microseconds(), uint64(l.CPUPeriod.D().Microseconds())
}

// signed fits a limit into the library's type; beyond it there is no memory.
func signed(n uint64) *int64 {
	v := int64(min(n, math.MaxInt64))
	return &v
}
