package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// disks are those under the directories that chats use, and why a directory has none. They are
// looked up each time: a home may be mounted from another disk tomorrow.
func (f *FS) disks() (disks []string, lacking []error) {
	for _, dir := range f.o.Dirs {
		disk, err := sys.Disk(dir)
		if err != nil {
			lacking = append(lacking, err)
		} else if disk != "" && !slices.Contains(disks, disk) {
			disks = append(disks, disk)
		}
	}
	return disks, lacking
}

// boundsDisks reports whether chats can have the controller of block I/O.
func (f *FS) boundsDisks() bool {
	if f.legacy == nil {
		offered, err := words(filepath.Join(f.bases.Unified, "cgroup.controllers"))
		return err == nil && slices.Contains(offered, "io")
	}
	_, err := os.Stat(filepath.Join(f.legacy["blkio"], "blkio.throttle.read_bps_device"))
	return f.legacy["blkio"] != "" && err == nil
}

// diskLines are the disks that have a line in a file of a cgroup; none without the file.
func diskLines(dir, file string) (disks []string, err error) {
	text, err := cgroupfs.Read(dir, file)
	if errors.Is(err, chat.ErrNotFound) {
		return nil, nil
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && strings.Contains(f[0], ":") {
			disks = append(disks, f[0])
		}
	}
	return disks, err
}

// setDisks writes what line says of each disk, and for each other one that the file has a line of
// what it says of 0. Without the file it writes nothing.
func setDisks(dir, file string, disks []string, line func(disk string, bounded bool) string) error {
	had, err := diskLines(dir, file)
	if err != nil {
		return err
	}
	for _, disk := range had {
		if !slices.Contains(disks, disk) {
			err = errors.Join(err, cgroupfs.WriteIfThere(dir, file, line(disk, false)))
		}
	}
	for _, disk := range disks {
		err = errors.Join(err, cgroupfs.WriteIfThere(dir, file, line(disk, true)))
	}
	return err
}

// sharesByWeight reports whether weights count on a disk. Its scheduler is BFQ, or the kernel's
// model of costs is on for it (io.cost.qos of cgroup-v2.rst), which only cgroup v2 has.
func (f *FS) sharesByWeight(disk string) bool {
	scheduler, err := os.ReadFile("/sys/dev/block/" + disk + "/queue/scheduler")
	if err == nil && strings.Contains(string(scheduler), "[bfq]") {
		return true
	}
	costs, err := os.ReadFile(filepath.Join(unifiedRoot, "io.cost.qos"))
	return f.legacy == nil && err == nil && costsOn(string(costs), disk)
}

// costsOn finds a disk in io.cost.qos.
func costsOn(text, disk string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == disk {
			return slices.Contains(f, "enable=1")
		}
	}
	return false
}

// bfqWeight fits a weight of io.weight, 1 to 10000, into BFQ's 1 to 1000, as systemd does: 100 is
// the default of both.
func bfqWeight(weight uint64) string {
	if weight > 100 {
		weight = 100 + (weight-100)*(1000-100)/(10000-100)
	}
	return strconv.FormatUint(weight, 10)
}
