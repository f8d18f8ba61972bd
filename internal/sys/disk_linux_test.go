package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestWholeDisk: the disk of a partition is the disk, and any other device is one itself.
func TestWholeDisk(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"devices/vda/dev": "254:0\n", "devices/virtual/dm-0/dev": "253:0\n",
		"devices/vda/vda1/dev": "254:1\n", "devices/vda/vda1/partition": "1\n",
	} {
		file := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if err = errors.Join(err, os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{"254:0": "vda", "254:1": "vda/vda1", "253:0": "virtual/dm-0"}
	for dev, dir := range links {
		must.Do(t, os.Symlink("devices/"+dir, filepath.Join(root, dev)))
	}
	wants := map[string]string{"254:0": "254:0", "254:1": "254:0", "253:0": "253:0", "8:0": ""}
	for dev, want := range wants {
		if got, err := wholeDisk(root, dev); got != want || (err == nil) != (want != "") {
			t.Errorf("device %s is on disk %q, %v, want %q", dev, got, err, want)
		}
	}
}

// TestDisk: a file system in memory has no disk, one that names none is said to, and the rest is
// a device that the kernel knows.
func TestDisk(t *testing.T) {
	if disk, err := Disk("/dev/shm"); disk != "" || err != nil {
		t.Errorf("/dev/shm is on disk %q, %v", disk, err)
	}
	expect.Is(t, expect.Err(Disk("/none")), os.ErrNotExist, "a path that is not there")
	if _, err := Disk("/proc/self"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("/proc: %v, want that it names no disk", err)
	}
	disk, err := Disk("/usr")
	if errors.Is(err, errors.ErrUnsupported) {
		return // a container's overlay
	}
	if disk == "" && err == nil {
		return // in memory
	}
	if _, serr := os.Stat("/sys/dev/block/" + disk); err != nil || serr != nil {
		t.Errorf("/usr is on disk %q, %v, %v", disk, err, serr)
	}
}

// TestDiskOf: a file system without a device number of its own is on what it was mounted from.
func TestDiskOf(t *testing.T) {
	for _, m := range []Mount{
		{Kind: "overlay", Source: "overlay"}, {Kind: "zfs", Source: "pool/home"},
		{Kind: "btrfs", Source: "/dev/null"}, {Kind: "9p", Source: "/none"},
	} {
		if disk, err := diskOf("/x", m); disk != "" || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%+v is on disk %q, %v", m, disk, err)
		}
	}
	disks, err := filepath.Glob("/dev/[vsh]d[a-z]")
	if err != nil || len(disks) == 0 {
		t.Log("no disk has a node here")
		return
	}
	if disk, err := diskOf("/x", Mount{Kind: "btrfs", Source: disks[0]}); disk == "" || err != nil {
		t.Errorf("btrfs on %s: %q, %v", disks[0], disk, err)
	}
}

// TestPoolOf: subvolumes of one btrfs and datasets of one ZFS pool are one pool, whatever their
// devices, and nothing else is.
func TestPoolOf(t *testing.T) {
	const dev, other = "0:40", "0:41"
	for _, row := range []struct {
		a, b Mount
		same bool
	}{
		{Mount{Kind: "btrfs", Source: "/dev/vda"}, Mount{Kind: "btrfs", Source: "/dev/vda"}, true},
		{Mount{Kind: "btrfs", Source: "/dev/vda"}, Mount{Kind: "btrfs", Source: "/dev/vdb"}, false},
		{Mount{Kind: "zfs", Source: "tank/home"}, Mount{Kind: "zfs", Source: "tank"}, true},
		{Mount{Kind: "zfs", Source: "tank/home"}, Mount{Kind: "zfs", Source: "tank2/home"}, false},
		{Mount{Kind: "tmpfs", Source: "tmpfs"}, Mount{Kind: "tmpfs", Source: "tmpfs"}, false},
		{Mount{}, Mount{}, false},
	} {
		if same := poolOf(row.a, dev) == poolOf(row.b, other); same != row.same {
			t.Errorf("%+v and %+v are one pool: %t", row.a, row.b, same)
		}
	}
	proc, err := Pool("/proc")
	if self, serr := Pool("/proc/self"); err != nil || serr != nil || proc != self {
		t.Errorf("/proc is %q, %v, and what is in it %q, %v", proc, err, self, serr)
	}
	expect.Is(t, expect.Err(Pool("/none")), os.ErrNotExist, "a path that is not there")
}
