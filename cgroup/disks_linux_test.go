package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSetDisks: each disk gets its line, and one that only the file has is given up; without the
// file nothing is written.
func TestSetDisks(t *testing.T) {
	dir := t.TempDir()
	var lines []string
	line := func(disk string, bounded bool) string {
		text := disk + " up"
		if bounded {
			text = disk + " to"
		}
		lines = append(lines, text)
		return text
	}
	must.Do(t, setDisks(dir, "io.max", []string{"8:0"}, line))
	expect.Is(t, expect.Err(os.Stat(filepath.Join(dir, "io.max"))), os.ErrNotExist, "the file was made")
	lines = nil
	const text = "8:0 rbps=1\n8:16 wbps=2\nTotal 3\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "io.max"), []byte(text), 0o600))
	must.Do(t, setDisks(dir, "io.max", []string{"8:0", "8:32"}, line))
	if want := []string{"8:16 up", "8:0 to", "8:32 to"}; !slices.Equal(lines, want) {
		t.Errorf("written were %q, want %q", lines, want)
	}
}

// TestCostsOn reads io.cost.qos as the kernel prints it.
func TestCostsOn(t *testing.T) {
	const text = "8:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=auto\n"
	for disk, want := range map[string]bool{"8:0": true, "8:16": false, "8:1": false, "": false} {
		expect.True(t, costsOn(text, disk) == want, "disk %q: %v, want %v", disk, !want, want)
	}
}

// TestBFQWeight: the ends and the default of both scales meet.
func TestBFQWeight(t *testing.T) {
	wants := map[uint64]string{1: "1", 50: "50", 100: "100", 5050: "550", 10_000: "1000"}
	for weight, want := range wants {
		if got := bfqWeight(weight); got != want {
			t.Errorf("%d is %s of BFQ, want %s", weight, got, want)
		}
	}
}

// TestDisks: a disk is named once, and a directory without one is a reason.
func TestDisks(t *testing.T) {
	f := newFS(Options{Dirs: []string{"/dev/shm", "/proc/self", "/usr", "/usr/bin", "/none"}})
	disks, lacking := f.disks()
	said := fmt.Sprint(lacking)
	expect.True(t, len(disks) <= 1 && len(lacking) >= 2 && strings.Contains(said, "/proc/self"),
		"disks %v, lacking %v", disks, lacking)
}
