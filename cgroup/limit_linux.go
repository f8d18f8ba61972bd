package cgroup

import (
	"math"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/coreos/go-systemd/v22/dbus"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// bound is one limit in the three ways in which it is written: to the files of cgroup v2, as
// properties of a systemd unit, and to the files of cgroup v1.
type bound struct {
	layer chat.LayerName // with it in Options.Without, nothing is set
	late  bool           // LimitCPU sets it, not Create

	unified func(f *FS, id chat.ID, l chat.Limits) error
	unit    func(f *FS, id chat.ID, l chat.Limits) []dbus.Property
	legacy  func(f *FS, id chat.ID, l chat.Limits) error
	// lift takes the bound from a chat that is being ended, if it would wait for it.
	lift func(f *FS, id chat.ID) error
	// unkept says what of it this host does not keep.
	unkept func(f *FS, l chat.Limits) []string
}

var bounds = []bound{
	{layer: chat.LayerPids, unified: unifiedPids, unit: unitPids, legacy: legacyPids},
	{layer: chat.LayerMemory, unified: unifiedMemory, unit: unitMemory, legacy: legacyMemory},
	{layer: chat.LayerCPU, late: true, unified: unifiedCPU, unit: unitCPU, legacy: legacyCPU, lift: liftCPU},
}

// memory and swap

func unifiedMemory(f *FS, id chat.ID, l chat.Limits) error {
	m := cgroup2.Memory{Max: signed(l.MemoryMax)}
	// Without swap accounting (swapaccount=0) the file is not there; Probe tells.
	if _, err := os.Stat(filepath.Join(f.dir(id), "memory.swap.max")); err == nil {
		m.Swap = signed(l.SwapMax)
	}
	return f.update(id, &cgroup2.Resources{Memory: &m})
}

func unitMemory(_ *FS, _ chat.ID, l chat.Limits) []dbus.Property {
	return []dbus.Property{property("MemoryMax", l.MemoryMax), property("MemorySwapMax", l.SwapMax)}
}

func legacyMemory(f *FS, id chat.ID, l chat.Limits) error { return f.legacy.limitMemory(id, l) }

// number of tasks

func unifiedPids(f *FS, id chat.ID, l chat.Limits) error {
	return f.update(id, &cgroup2.Resources{Pids: &cgroup2.Pids{Max: *signed(l.PidsMax)}})
}

func unitPids(_ *FS, _ chat.ID, l chat.Limits) []dbus.Property {
	return []dbus.Property{property("TasksMax", l.PidsMax)}
}

func legacyPids(f *FS, id chat.ID, l chat.Limits) error {
	pids := &specs.LinuxPids{Limit: signed(l.PidsMax)}
	return f.legacy.update(id, cgroup1.Pids, &specs.LinuxResources{Pids: pids})
}

// CPU time

func unifiedCPU(f *FS, id chat.ID, l chat.Limits) error {
	quota, period := cpuMicros(l)
	return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}})
}

// unitCPU is the quota as systemd counts it: in microseconds a second.
func unitCPU(_ *FS, _ chat.ID, l chat.Limits) []dbus.Property {
	share := l.CPUQuota.D().Seconds() / l.CPUPeriod.D().Seconds()
	return []dbus.Property{
		property("CPUQuotaPerSecUSec", uint64(math.Round(share*1e6))),
		property("CPUQuotaPeriodUSec", uint64(l.CPUPeriod.D().Microseconds())),
	}
}

func legacyCPU(f *FS, id chat.ID, l chat.Limits) error {
	quota, period := cpuMicros(l)
	cpu := &specs.LinuxCPU{Quota: &quota, Period: &period}
	return f.legacy.update(id, cgroup1.Cpu, &specs.LinuxResources{CPU: cpu})
}

// liftCPU: the dying need CPU time to die.
func liftCPU(f *FS, id chat.ID) error {
	if f.legacy == nil {
		return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(nil, nil)}})
	}
	none := int64(-1)
	cpu := &specs.LinuxCPU{Quota: &none}
	return f.legacy.update(id, cgroup1.Cpu, &specs.LinuxResources{CPU: cpu})
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
