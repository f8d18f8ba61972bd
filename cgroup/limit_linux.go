package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/cgroup/systemd"
	"github.com/chatd/chatd/chat"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// bound is one limit in the three ways in which it is written: to the files of cgroup v2, as
// properties of a systemd unit, and to the files of cgroup v1.
type bound struct {
	layer chat.LayerName // with it in Options.Without, nothing is set; it may have none
	late  bool           // LimitCPU sets it, not Create

	// set writes the files of the host's mode; unit is the properties.
	set  func(f *FS, id chat.ID, l chat.Limits) error
	unit func(f *FS, id chat.ID, l chat.Limits) []systemd.Property
	// lift takes the bound from a chat that is being ended, if it would wait for it.
	lift func(f *FS, id chat.ID) error
	// unkept says what of it this host does not keep.
	unkept func(f *FS, l chat.Limits) []string
}

var bounds = []bound{
	{layer: chat.LayerPids, set: setPids, unit: unitPids},
	{layer: chat.LayerMemory, set: setMemory, unit: unitMemory},
	{layer: chat.LayerCPU, late: true, set: setCPU, unit: unitCPU, lift: liftCPU},
	{set: setIO, unit: unitIO, lift: liftIO, unkept: unkeptIO},
}

// memory and swap

func setMemory(f *FS, id chat.ID, l chat.Limits) error {
	if f.legacy != nil {
		return f.legacy.limitMemory(id, l)
	}
	m := cgroup2.Memory{Max: signed(l.MemoryMax)}
	// Without swap accounting (swapaccount=0) the file is not there; Probe tells.
	if _, err := os.Stat(filepath.Join(f.dir(id), "memory.swap.max")); err == nil {
		m.Swap = signed(l.SwapMax)
	}
	return f.update(id, &cgroup2.Resources{Memory: &m})
}

func unitMemory(_ *FS, _ chat.ID, l chat.Limits) []systemd.Property {
	return []systemd.Property{
		systemd.Prop("MemoryMax", l.MemoryMax), systemd.Prop("MemorySwapMax", l.SwapMax),
	}
}

// number of tasks

func setPids(f *FS, id chat.ID, l chat.Limits) error {
	dir, file := f.file(id, "", "pids.max")
	return cgroupfs.Write(dir, file, strconv.FormatUint(l.PidsMax, 10))
}

func unitPids(_ *FS, _ chat.ID, l chat.Limits) []systemd.Property {
	return []systemd.Property{systemd.Prop("TasksMax", l.PidsMax)}
}

// CPU time

func setCPU(f *FS, id chat.ID, l chat.Limits) error {
	quota, period := l.CPUQuota.D().Microseconds(), uint64(l.CPUPeriod.D().Microseconds())
	if f.legacy == nil {
		return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}})
	}
	if err := f.legacy.set(id, "cpu", "cpu.cfs_period_us", int64(period)); err != nil {
		return err
	}
	return f.legacy.set(id, "cpu", "cpu.cfs_quota_us", quota)
}

// unitCPU is the quota as systemd counts it: in microseconds a second.
func unitCPU(_ *FS, _ chat.ID, l chat.Limits) []systemd.Property {
	share := l.CPUQuota.D().Seconds() / l.CPUPeriod.D().Seconds()
	return []systemd.Property{
		systemd.Prop("CPUQuotaPerSecUSec", uint64(math.Round(share*1e6))),
		systemd.Prop("CPUQuotaPeriodUSec", uint64(l.CPUPeriod.D().Microseconds())),
	}
}

// liftCPU: the dying need CPU time to die.
func liftCPU(f *FS, id chat.ID) error {
	if f.legacy == nil {
		return f.update(id, &cgroup2.Resources{CPU: &cgroup2.CPU{Max: cgroup2.NewCPUMax(nil, nil)}})
	}
	return f.legacy.set(id, "cpu", "cpu.cfs_quota_us", -1)
}

// signed fits a limit into the library's type; beyond it there is no memory.
func signed(n uint64) *int64 {
	v := int64(min(n, math.MaxInt64))
	return &v
}

// block I/O

// ioBounds are the bounds of one disk, by their names in io.max, in a unit and under cgroup v1; 0
// is none.
func ioBounds(l chat.Limits) []ioBound {
	return []ioBound{
		{"rbps", "IOReadBandwidthMax", "blkio.throttle.read_bps_device", l.IOReadBPS},
		{"wbps", "IOWriteBandwidthMax", "blkio.throttle.write_bps_device", l.IOWriteBPS},
		{"riops", "IOReadIOPSMax", "blkio.throttle.read_iops_device", l.IOReadIOPS},
		{"wiops", "IOWriteIOPSMax", "blkio.throttle.write_iops_device", l.IOWriteIOPS},
	}
}

type ioBound struct {
	unified, unit, legacy string
	value                 uint64
}

// ioDisks are the disks that have a bound.
func (f *FS) ioDisks(l chat.Limits) []string {
	if !l.BoundsIO() {
		return nil
	}
	disks, _ := f.disks() // unkeptIO says what has none
	return disks
}

// setIO lets a chat under cgroup v1 join the controller for its first bound.
func setIO(f *FS, id chat.ID, l chat.Limits) error {
	if f.legacy == nil {
		return errors.Join(f.setIOMax(id, l),
			cgroupfs.WriteIfThere(f.dir(id), "io.weight", strconv.FormatUint(l.IOWeight, 10)),
			cgroupfs.WriteIfThere(f.dir(id), "io.bfq.weight", bfqWeight(l.IOWeight)))
	}
	if f.legacy["blkio"] == "" || !l.AsksIO() && !f.legacy.has("blkio", id) {
		return nil
	}
	if err := f.joinFurther("blkio", id); err != nil {
		return err
	}
	weight := cgroupfs.WriteIfThere(f.legacy.dir("blkio", id, ""), "blkio.bfq.weight", bfqWeight(l.IOWeight))
	return errors.Join(f.setThrottle(id, l), weight)
}

// setIOMax sets the bounds, all of a disk in one line.
func (f *FS) setIOMax(id chat.ID, l chat.Limits) error {
	return setDisks(f.dir(id), "io.max", f.ioDisks(l), func(disk string, bounded bool) string {
		for _, b := range ioBounds(l) {
			value := "max"
			if bounded && b.value > 0 {
				value = strconv.FormatUint(b.value, 10)
			}
			disk += " " + b.unified + "=" + value
		}
		return disk
	})
}

// unitIO is nothing where nothing is asked and nothing was set, as with most chats. systemd takes
// an empty list for no bound.
func unitIO(f *FS, id chat.ID, l chat.Limits) []systemd.Property {
	disks := f.ioDisks(l)
	had, err := diskLines(f.dir(id), "io.max")
	weight, werr := cgroupfs.Read(f.dir(id), "io.weight")
	weighs := werr == nil && strings.TrimSpace(string(weight)) != "default 100"
	if !l.AsksIO() && !weighs && len(had) == 0 && err == nil {
		return nil
	}
	props := []systemd.Property{systemd.Prop("IOWeight", l.IOWeight)}
	for _, b := range ioBounds(l) {
		list := []unitBound{}
		for _, disk := range disks {
			if b.value > 0 {
				list = append(list, unitBound{"/dev/block/" + disk, b.value})
			}
		}
		props = append(props, systemd.Prop(b.unit, list))
	}
	return props
}

// unitBound is the type (st) of IOReadBandwidthMax and the others.
type unitBound struct {
	Disk  string
	Value uint64
}

// setThrottle sets the bounds, each in a file of its own; 0 takes one away.
func (f *FS) setThrottle(id chat.ID, l chat.Limits) (err error) {
	disks := f.ioDisks(l)
	for _, b := range ioBounds(l) {
		line := func(disk string, bounded bool) string {
			if bounded {
				return disk + " " + strconv.FormatUint(b.value, 10)
			}
			return disk + " 0"
		}
		err = errors.Join(err, setDisks(f.legacy.dir("blkio", id, ""), b.legacy, disks, line))
	}
	return err
}

// liftIO: a process ends only after what it asked of a disk. One read of 256 MiB at 1 MiB a second
// takes minutes; many processes can ask for days.
func liftIO(f *FS, id chat.ID) error {
	if f.legacy == nil {
		return f.setIOMax(id, chat.Limits{})
	}
	if !f.legacy.has("blkio", id) {
		return nil
	}
	return f.setThrottle(id, chat.Limits{})
}

func unkeptIO(f *FS, l chat.Limits) (all []string) {
	if !l.AsksIO() {
		return nil
	}
	if !f.boundsDisks() {
		return []string{"limits.io_… bound nothing: the host gives chats no controller of " +
			"block I/O (io of cgroup v2, blkio of v1)"}
	}
	disks, lacking := f.disks()
	for _, err := range lacking {
		all = append(all, fmt.Sprintf("limits.io_… bound nothing there: %v", err))
	}
	if f.legacy != nil && l.IOWriteBPS+l.IOWriteIOPS > 0 {
		all = append(all, "limits.io_write_… bound what programs write to the disk themselves "+
			"(O_DIRECT, fsync), and not what cgroup v1 lets the kernel write for them later")
	}
	for _, disk := range disks {
		if l.IOWeight != 100 && !f.sharesByWeight(disk) {
			all = append(all, fmt.Sprintf("limits.io_weight does nothing on disk %s: "+
				"its scheduler is not bfq, and io.cost.qos is not on", disk))
		}
	}
	return all
}
