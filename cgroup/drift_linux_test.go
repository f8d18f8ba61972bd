package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// foreign writes to a file of a chat's cgroup, as somebody else would.
func foreign(t *testing.T, f *FS, id chat.ID, v1, file1, file2, value1, value2 string) {
	t.Helper()
	if f.legacy != nil {
		must.Do(t, cgroupfs.Write(f.legacy.dir(v1, id, ""), file1, value1))
		return
	}
	must.Do(t, cgroupfs.Write(f.dir(id), file2, value2))
}

// TestDrift: each limit that somebody else changed is named, alone, and Limit puts it back. A
// living chat gets another limit at once.
func TestDrift(t *testing.T) {
	f := open(t)
	create(t, f, idA)
	l := limits()
	wantDrift := func(what string, want ...string) {
		t.Helper()
		got := must.Get(f.Drift(idA, l))(t)
		if f.legacy != nil {
			if _, err := os.Stat(filepath.Join(f.legacy.dir("memory", idA, ""), "memory.memsw.limit_in_bytes")); err != nil {
				want = slices.DeleteFunc(want, func(key string) bool { return key == "swap_max" })
			}
		}
		expect.True(t, slices.Equal(got, want), "%s: %v, want %v", what, got, want)
	}
	wantDrift("before its quota", "cpu_quota")
	must.Do(t, f.Limit(idA, l))
	wantDrift("as it is")
	foreign(t, f, idA, "pids", "pids.max", "pids.max", "max", "max")
	wantDrift("pids", "pids_max")
	must.Do(t, f.Limit(idA, l))
	foreign(t, f, idA, "cpu", "cpu.cfs_quota_us", "cpu.max", "-1", "max")
	wantDrift("no quota", "cpu_quota")
	must.Do(t, f.Limit(idA, l))
	foreign(t, f, idA, "cpu", "cpu.cfs_quota_us", "cpu.max", "300000", "300000 1000000")
	wantDrift("another quota", "cpu_quota")
	must.Do(t, f.Limit(idA, l))
	foreign(t, f, idA, "memory", "memory.limit_in_bytes", "memory.max", "33554432", "33554432")
	wantDrift("memory", "memory_max")
	must.Do(t, f.Limit(idA, l))
	wantDrift("put back")

	l.MemoryMax, l.PidsMax, l.CPUQuota, l.CPUPeriod = 100<<20+1, 77, chat.Duration(333*time.Millisecond), chat.Duration(500*time.Millisecond)
	wantDrift("other limits", "memory_max", "swap_max", "pids_max", "cpu_quota")
	must.Do(t, f.Limit(idA, l))
	wantDrift("set to the living chat")
	expect.Is(t, expect.Err(f.Drift(idB, l)), chat.ErrNotFound, "a chat that is not there")
}

// TestDriftOfBlockIO: a bound on a disk that somebody took away or changed is named.
func TestDriftOfBlockIO(t *testing.T) {
	f, _, disk := onDisk(t)
	must.Do(t, f.Create(idA, slow()))
	start(t, f, idA, "session", "exec sleep 1000")
	for i, foreignly := range []string{"none", "other"} {
		must.Do(t, f.Limit(idA, slow()))
		got, err := f.Drift(idA, slow())
		expect.True(t, err == nil && len(got) == 0, "as it is: %v, %v", got, err)
		v1, v2 := []string{" 0", " 7340032"}[i], []string{"max", "7340032"}[i]
		foreign(t, f, idA, "blkio", "blkio.throttle.write_bps_device", "io.max", disk+v1, disk+" wbps="+v2)
		if got, err := f.Drift(idA, slow()); err != nil || !slices.Equal(got, []string{"io_write_bps"}) {
			t.Errorf("%s: %v, %v", foreignly, got, err)
		}
	}
	if got, err := f.Drift(idA, limits()); err != nil || !slices.Contains(got, "io_read_bps") {
		t.Errorf("a bound that is not asked for: %v, %v", got, err)
	}
}

// TestHeld: memory that a program holds counts, and the cache of a file that it read does not.
func TestHeld(t *testing.T) {
	f := open(t)
	must.Do(t, f.Create(idA, limits()))
	file := filepath.Join(t.TempDir(), "cached")
	start(t, f, idA, "session", "head -c 16777216 /dev/zero > "+file+"; touch "+file+".made; exec sleep 1000")
	await(t, "the file is there", func() bool { _, err := os.Stat(file + ".made"); return err == nil })
	u := must.Get(f.Usage(idA))(t)
	held := must.Get(f.Unreclaimable(idA))(t)
	expect.True(t, held != 0 && held+8<<20 <= u.MemoryBytes,
		"held %d of %d, of which 16 MiB are cache", held, u.MemoryBytes)
	expect.Is(t, expect.Err(f.Unreclaimable(idB)), chat.ErrNotFound, "a chat that is not there")
}

// TestLimitGoesOn: under cgroup v1 the kernel refuses a limit below what is held. What comes after
// it is set all the same, and the refused one is drift.
func TestLimitGoesOn(t *testing.T) {
	f := open(t)
	if f.legacy == nil {
		t.Skip("cgroup v2 ends processes instead")
	}
	must.Do(t, f.Create(idA, limits()))
	done := filepath.Join(t.TempDir(), "done")
	start(t, f, idA, "session", "{ head -c 25165824 /dev/zero; touch "+done+"; exec sleep 1000; } | tail -c 25165824 > /dev/null")
	await(t, "the memory is held", func() bool { _, err := os.Stat(done); return err == nil })
	l := limits()
	l.MemoryMax, l.PidsMax, l.CPUQuota = 16<<20, 33, chat.Duration(100*time.Millisecond)
	if held, err := f.Unreclaimable(idA); err != nil || held < l.MemoryMax {
		t.Errorf("held %d, want above %d: %v", held, l.MemoryMax, err)
	}
	expect.Is(t, f.Limit(idA, l), chat.ErrBusy, "a limit below what is held")
	got, err := f.Drift(idA, l)
	if err != nil || !slices.Equal(got, []string{"memory_max"}) && !slices.Equal(got, []string{"memory_max", "swap_max"}) {
		t.Errorf("drift %v, %v", got, err)
	}
}
