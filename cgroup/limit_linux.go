package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/coreos/go-systemd/v22/dbus"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Each limit is written three times: to the files of cgroup v2, as a property of a systemd
// unit, and to the files of cgroup v1.

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
	m, err := cgroup2.Load("/"+f.group(id), cgroup2.WithMountpoint(f.bases.Unified))
	if err == nil {
		err = m.Update(r)
	}
	if err != nil {
		return fmt.Errorf("cannot limit chat %s: %w", id, notFound(err))
	}
	return nil
}

// boundProperties are the limits that stand from the first instruction.
func boundProperties(l chat.Limits, without func(chat.LayerName) bool) []dbus.Property {
	var props []dbus.Property
	if !without(chat.LayerMemory) {
		props = append(props, property("MemoryMax", l.MemoryMax), property("MemorySwapMax", l.SwapMax))
	}
	if !without(chat.LayerPids) {
		props = append(props, property("TasksMax", l.PidsMax))
	}
	return props
}

// cpuProperties are the quota. systemd counts it in microseconds a second.
//
// The order is that of the names of the drop-ins that systemd writes for these
// and then for boundProperties: in any other it says ever after that the unit
// changed on disk (unit_need_daemon_reload compares lists).
func cpuProperties(l chat.Limits, without func(chat.LayerName) bool) []dbus.Property {
	if without(chat.LayerCPU) {
		return nil
	}
	share := l.CPUQuota.D().Seconds() / l.CPUPeriod.D().Seconds()
	return []dbus.Property{
		property("CPUQuotaPerSecUSec", uint64(math.Round(share*1e6))),
		property("CPUQuotaPeriodUSec", uint64(l.CPUPeriod.D().Microseconds())),
	}
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

// cpuMicros is the quota and the period in the kernel's unit.
func cpuMicros(l chat.Limits) (quota int64, period uint64) {
	return l.CPUQuota.D().Microseconds(), uint64(l.CPUPeriod.D().Microseconds())
}

// signed fits a limit into the library's type; beyond it there is no memory.
func signed(n uint64) *int64 {
	v := int64(min(n, math.MaxInt64))
	return &v
}
