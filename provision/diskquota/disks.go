package diskquota

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// Amount is what a uid has, or may have; 0 is not a limit.
type Amount struct{ Bytes, Inodes uint64 }

// Plus is the sum of two.
func (a Amount) Plus(b Amount) Amount { return Amount{a.Bytes + b.Bytes, a.Inodes + b.Inodes} }

// Percent is how much of a limit is used up: the larger of both, and 100 within a thousandth of
// the limit, since a write that does not fit whole leaves some.
func (a Amount) Percent(limit Amount) int {
	return max(percent(a.Bytes, limit.Bytes), percent(a.Inodes, limit.Inodes))
}

func percent(n, limit uint64) int {
	switch {
	case limit == 0:
		return 0
	case n < limit && n >= limit-limit/1000:
		return 100
	}
	return int(min(float64(n)/float64(limit), 1000) * 100)
}

// Disks are the file systems of some directories. Its methods are safe for concurrent use.
type Disks struct {
	dirs   []string
	kernel kernel
}

// New returns the file systems of directories of root's, which need not exist yet.
func New(dirs ...string) *Disks { return &Disks{dirs: dirs, kernel: linux{}} }

// Dirs are the directories that New was given.
func (d *Disks) Dirs() []string { return d.dirs }

// otherUID is not root's: the kernel tells root its own quota also where it may set none.
const otherUID = 1

// bounds reports whether the file system of dir enforces limits that may be set here. In a
// container the kernel may enforce those of the host, and let nobody read or set one.
func (d *Disks) bounds(dir string) (bool, error) {
	on, err := d.kernel.enforces(dir)
	if on {
		if _, gerr := d.kernel.get(dir, otherUID); isForbidden(gerr) {
			return false, gerr
		}
	}
	return on, err
}

// isForbidden is what a container gets whose file systems are the host's to bound.
func isForbidden(err error) bool { return errors.Is(err, fs.ErrPermission) }

// Enable makes each file system enforce limits that counts already, and returns a directory on
// each such. The others stay as they are.
func (d *Disks) Enable() (enabled []string, err error) {
	for _, dir := range d.parts() {
		on, kerr := d.kernel.enforces(dir)
		if on || kerr != nil {
			continue
		}
		if kerr = d.kernel.enable(dir); kerr == nil {
			enabled = append(enabled, dir)
		}
		err = errors.Join(err, kerr)
	}
	return enabled, err
}

// Unbounded are the directories on file systems that enforce nothing, or let no limit be set.
func (d *Disks) Unbounded() (dirs []string) {
	for _, dir := range d.dirs {
		if on, _ := d.bounds(dir); !on {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// parts is a directory on each file system.
func (d *Disks) parts() (dirs []string) {
	seen := map[uint64]bool{}
	for _, dir := range d.dirs {
		dev, err := d.kernel.device(dir)
		if err != nil || seen[dev] { // prepared later
			continue
		}
		seen[dev] = true
		dirs = append(dirs, dir)
	}
	return dirs
}

// bounded is parts without those of Unbounded. The error is of those that do not tell.
func (d *Disks) bounded() (dirs []string, err error) {
	for _, dir := range d.parts() {
		on, kerr := d.bounds(dir)
		switch {
		case on:
			dirs = append(dirs, dir)
		case kerr != nil && !errors.Is(kerr, errors.ErrUnsupported) && !isForbidden(kerr):
			err = errors.Join(err, kerr)
		}
	}
	return dirs, err
}

// Set bounds what the uid may have on each file system that enforces limits and lets them be set.
func (d *Disks) Set(uid uint32, limit Amount) error {
	dirs, err := d.bounded()
	for _, dir := range dirs {
		err = errors.Join(err, d.kernel.set(dir, uid, limit.hard()))
	}
	return err
}

// Clear removes the limits that Set made. The kernel forgets a uid that has neither.
func (d *Disks) Clear(uid uint32) error { return d.Set(uid, Amount{}) }

// Drift says how the limits of the uid differ from what Set made of limit; empty if they do not.
func (d *Disks) Drift(uid uint32, limit Amount) (string, error) {
	want := limit.hard()
	dirs, err := d.bounded()
	for _, dir := range dirs {
		b, err := d.kernel.get(dir, uid)
		if err != nil {
			return "", err
		}
		if b.hardKiB != want.hardKiB || b.hardInodes != want.hardInodes ||
			b.softKiB|b.softInodes != 0 {
			return fmt.Sprintf("its quota in %s is %d KiB and %d inodes",
				dir, b.hardKiB, b.hardInodes), nil
		}
	}
	return "", err
}

// Used is what the uid has on all file systems that enforce limits, and the largest percentage of
// limit on one of them. known is false if there is none.
func (d *Disks) Used(uid uint32, limit Amount) (held Amount, used int, known bool, err error) {
	dirs, err := d.bounded()
	if err != nil {
		return held, used, known, err
	}
	for _, dir := range dirs {
		b, gerr := d.kernel.get(dir, uid)
		if gerr != nil {
			return held, used, known, gerr
		}
		here := Amount{b.bytes, b.inodes}
		held, used, known = held.Plus(here), max(used, here.Percent(limit)), true
	}
	return held, used, known, nil
}

// hard is the limit as the kernel takes it.
func (a Amount) hard() dqblk {
	return dqblk{hardKiB: (a.Bytes + 1023) / 1024, hardInodes: a.Inodes}
}

// Room says which of chatd's own directories are on a file system that chats can write, and what is
// left for root there when they fill it. findings are those where nothing is.
func (d *Disks) Room(own ...string) (words string, findings []string) {
	shared := map[string]bool{}
	for _, dir := range d.dirs {
		if pool, err := d.kernel.pool(dir); err == nil {
			shared[pool] = true
		}
	}
	var parts []string
	for _, dir := range own {
		pool, err := d.kernel.pool(dir)
		if err != nil {
			continue
		}
		if !shared[pool] {
			parts = append(parts, fmt.Sprintf("no chat fills the file system of %s", dir))
			continue
		}
		mib := reserved(dir)
		if mib == 0 {
			findings = append(findings, fmt.Sprintf("chats can fill the file system of %s, and it "+
				"reserves nothing for root: move it to an ext4 with reserved blocks "+
				"(tune2fs -m)", dir))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d MiB are reserved for root on the file system "+
			"of %s, which chats share", mib, dir))
	}
	return strings.Join(parts, "; "), findings
}

// reserved is how many MiB of a file system root alone can write.
func reserved(dir string) uint64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	return reservedOf(st)
}

func reservedOf(st unix.Statfs_t) uint64 {
	// Of btrfs the difference is what is not allocated yet, and nobody's.
	if st.Bfree < st.Bavail || st.Type == unix.BTRFS_SUPER_MAGIC {
		return 0
	}
	return (st.Bfree - st.Bavail) * uint64(st.Bsize) >> 20
}
