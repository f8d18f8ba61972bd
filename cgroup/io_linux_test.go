package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// onDisk gives a backend that bounds the disk of a directory of its own.
func onDisk(t *testing.T) (f *FS, dir, disk string) {
	t.Helper()
	f = open(t)
	dir, err := os.MkdirTemp("/var/tmp", "chatd-test-io-") // /tmp may be in memory
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	f.o.Dirs = []string{dir}
	if disks, lacking := f.disks(); len(lacking) == 0 && len(disks) == 1 && f.boundsDisks() {
		return f, dir, disks[0]
	}
	if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
		t.Fatalf("needs a disk under /var/tmp and the controller io or blkio: %v", f.Unkept(slow()))
	}
	t.Skipf("needs a disk under /var/tmp and the controller io or blkio: %v", f.Unkept(slow()))
	return nil, "", ""
}

// slow is a minute for each 64 MiB, and memory enough for many buffers.
func slow() chat.Limits {
	l := limits()
	l.MemoryMax, l.IOReadBPS, l.IOWriteBPS = 1<<30, 1<<20, 1<<20
	return l
}

// ioFiles are the lines of bounds of a chat in the kernel's files: of v2's one, or of v1's by name.
func ioFiles(t *testing.T, f *FS, id chat.ID) string {
	t.Helper()
	dir, names := f.dir(id), []string{"io.max"}
	if f.legacy != nil {
		dir, names = f.legacy.dir("blkio", id, ""), nil
		for _, b := range ioBounds(chat.Limits{}) {
			names = append(names, b.legacy)
		}
	}
	var lines []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && len(text) > 0 {
			short := strings.TrimPrefix(name, "blkio.throttle.")
			lines = append(lines, short+" "+strings.TrimSpace(string(text)))
		}
	}
	return strings.Join(lines, ", ")
}

// TestBlockIOFiles sets, changes and takes away the bounds of a chat that is awake, and reads the
// kernel's files: what was never asked for leaves no trace.
func TestBlockIOFiles(t *testing.T) {
	f, _, disk := onDisk(t)
	session := create(t, f, idA)
	if got := ioFiles(t, f, idA); got != "" || f.legacy != nil && f.legacy.has("blkio", idA) {
		t.Errorf("a chat without a bound has %q", got)
	}
	l := limits()
	for _, c := range []struct {
		io              chat.IOLimits
		unified, legacy string
	}{
		{chat.IOLimits{IOWeight: 100, IOReadBPS: 1 << 20, IOWriteIOPS: 200},
			"io.max D rbps=1048576 wbps=max riops=max wiops=200",
			"read_bps_device D 1048576, write_iops_device D 200"},
		{chat.IOLimits{IOWeight: 100, IOWriteBPS: 2 << 20, IOReadIOPS: 300},
			"io.max D rbps=max wbps=2097152 riops=300 wiops=max",
			"write_bps_device D 2097152, read_iops_device D 300"},
		{chat.IOLimits{IOWeight: 100}, "", ""},
	} {
		l.IOLimits = c.io
		must.Do(t, f.Limit(idA, l))
		want := c.unified
		if f.legacy != nil {
			want = c.legacy
			inside, err := cgroupfs.Processes(f.legacy.dir("blkio", idA, ""))
			expect.True(t, err == nil && slices.Contains(inside, session.Process.Pid),
				"the session is not bounded: inside are %v, %v", inside, err)
		}
		got := ioFiles(t, f, idA)
		expect.True(t, got == strings.ReplaceAll(want, "D", disk), "%+v is %q, want %q", c.io, got, want)
	}
	must.Do(t, f.Kill(killCtx(t), idA))
	must.Do(t, f.Remove(idA))
	if f.legacy != nil && f.legacy.has("blkio", idA) {
		t.Error("Remove left the cgroup of block I/O")
	}
}

// TestBlockIOWeight reads the weight back where the kernel has a file for it.
func TestBlockIOWeight(t *testing.T) {
	f, _, _ := onDisk(t)
	l := limits()
	l.IOWeight = 5050
	must.Do(t, f.Create(idA, l))
	dir := f.dir(idA)
	if f.legacy != nil {
		dir = f.legacy.dir("blkio", idA, "")
	}
	found := 0
	for file, want := range map[string]string{
		"io.weight": "5050", "io.bfq.weight": "550", "blkio.bfq.weight": "550",
	} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		found++
		got, _, _ := strings.Cut(strings.TrimPrefix(string(text), "default "), "\n")
		expect.Equal(t, got, want, "%s", file)
	}
	if found == 0 && len(f.Unkept(l)) == 0 {
		t.Error("no file has the weight, and nobody is told")
	}
}

// fill writes a file of some MiB to the disk.
func fill(t *testing.T, file string, mib int) {
	t.Helper()
	count := fmt.Sprint("count=", mib)
	must.Do(t, exec.Command("/bin/dd", "if=/dev/zero", "of="+file, "bs=1M", count, "conv=fsync").Run())
}

// TestBlockIOIsBounded lets two chats read and write the same disk past the page cache. The chat
// with a bound begins first, and is not done when the other is.
func TestBlockIOIsBounded(t *testing.T) {
	f, dir, _ := onDisk(t)
	file := filepath.Join(dir, "read")
	fill(t, file, 64)
	free := limits()
	free.MemoryMax = slow().MemoryMax
	begin := func(id chat.ID, l chat.Limits) (cmds []*exec.Cmd) {
		must.Do(t, f.Create(id, l))
		must.Do(t, f.CreateRun(id, "r"))
		must.Do(t, f.CreateRun(id, "w"))
		return []*exec.Cmd{
			start(t, f, id, "runs/r", "exec dd iflag=direct bs=1M if="+file+" of=/dev/null"),
			start(t, f, id, "runs/w", "exec dd oflag=direct bs=1M count=64 if=/dev/zero of="+filepath.Join(dir, string(id))),
		}
	}
	bounded := begin(idA, slow())
	for i, cmd := range begin(idB, free) {
		expect.Is(t, cmd.Wait(), nil, "without a bound")
		if !alive(bounded[i]) {
			t.Errorf("with a bound 64 MiB were done before those without: %s", bounded[i].Args[2])
		}
	}
}

// waiting starts processes in a run that ask for more of a disk than Kill has time for, and waits
// until they wait for it.
func waiting(t *testing.T, f *FS, dir string) {
	t.Helper()
	file := filepath.Join(dir, "read")
	fill(t, file, 32)
	must.Do(t, f.Create(idA, slow()))
	must.Do(t, f.CreateRun(idA, "r"))
	const readers = 12 // of 32 MiB each: together they take twice generous
	const read = "for i in $(seq %d); do dd iflag=direct bs=32M count=1 if=%s of=/dev/null & done; wait"
	start(t, f, idA, "runs/r", fmt.Sprintf(read, readers, file))
	await(t, "the readers to wait", func() bool { return waitForDisk(t, f) == readers })
}

// waitForDisk counts the processes of the run that wait for a disk.
func waitForDisk(t *testing.T, f *FS) (n int) {
	t.Helper()
	pids := must.Get(cgroupfs.Processes(f.dir(idA, runsDir, "r")))(t)
	for _, pid := range pids {
		if st, err := sys.ReadStat(pid); err == nil && st.State == 'D' {
			n++
		}
	}
	return n
}

// TestKillDoesNotWaitForBlockIO: what processes asked of a disk they wait for after SIGKILL too, so
// a chat could outlive its end for hours. The next session is bounded again.
func TestKillDoesNotWaitForBlockIO(t *testing.T) {
	f, dir, _ := onDisk(t)
	waiting(t, f, dir)
	bound := ioFiles(t, f, idA)
	must.Do(t, f.Kill(killCtx(t), idA))
	must.Do(t, f.Create(idA, slow()))
	got := ioFiles(t, f, idA)
	expect.True(t, got == bound && got != "", "created again the chat has %q, before %q", got, bound)
}

// TestKillRunDoesNotWaitForBlockIO: the same of one run. The chat gets its bound back.
func TestKillRunDoesNotWaitForBlockIO(t *testing.T) {
	f, dir, _ := onDisk(t)
	waiting(t, f, dir)
	bound := ioFiles(t, f, idA)
	must.Do(t, f.KillRun(killCtx(t), idA, "r"))
	must.Do(t, f.RemoveRun(idA, "r"))
	await(t, "the bound", func() bool { return ioFiles(t, f, idA) == bound && bound != "" })
}

// TestStartDoesNotWaitForBlockIO: a chat that waits for its disk for minutes drops the program that
// chatd starts from the page cache, again and again. No fork of chatd's may wait for that.
func TestStartDoesNotWaitForBlockIO(t *testing.T) {
	f, dir, _ := onDisk(t)
	waiting(t, f, dir)
	program := filepath.Join(dir, "program")
	must.Do(t, exec.Command("/bin/cp", "/bin/true", program).Run())
	must.Do(t, exec.Command("/bin/sync", program).Run()) // what is not on the disk is not dropped
	content := must.Get(os.Open(program))(t)
	defer content.Close()
	must.Do(t, f.CreateRun(idA, "second"))
	started, dropped := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(dropped)
		for len(started) == 0 {
			_ = unix.Fadvise(int(content.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
	}()
	cmd := exec.Command(program)
	go func() { started <- f.Start(idA, "runs/second", cmd) }()
	<-dropped
	must.Do(t, <-started)
	expect.True(t, waitForDisk(t, f) != 0, "nobody waits for the disk any more: the start waited for it")
	must.Do(t, f.Kill(killCtx(t), idA))
	_ = cmd.Wait() // it was killed, or not
}

// TestUnkept: a bound that the host does not keep is said, and a chat without one is not worth a
// word.
func TestUnkept(t *testing.T) {
	f, dir, disk := onDisk(t)
	says := func(l chat.Limits, dirs []string, want ...string) {
		t.Helper()
		f.o.Dirs = dirs
		got := f.Unkept(l)
		if len(got) != len(want) {
			t.Errorf("%+v on %v: %q, want %q", l.IOLimits, dirs, got, want)
			return
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%+v on %v: %q, want %q", l.IOLimits, dirs, got[i], want[i])
			}
		}
	}
	read := limits()
	read.IOReadBPS = 1 << 20
	says(limits(), []string{"/proc/self"})
	says(read, []string{dir, "/dev/shm"})
	says(read, []string{dir, "/proc/self"}, "nothing there: cannot find the disk of /proc/self")
	write := limits()
	write.IOWriteBPS = 1 << 20
	if f.legacy != nil {
		says(write, []string{dir}, "O_DIRECT, fsync")
		base := f.bases.Legacy["blkio"]
		delete(f.bases.Legacy, "blkio")
		defer func() { f.bases.Legacy["blkio"] = base }() // which goes with the test
		says(read, []string{dir}, "no controller")
		must.Do(t, f.Create(idA, read)) // it is told of, and no chat fails over it
	} else {
		says(write, []string{dir})
	}
	if weighed := limits(); !f.sharesByWeight(disk) && f.boundsDisks() {
		weighed.IOWeight = 200
		says(weighed, []string{dir}, "io_weight does nothing on disk "+disk)
	}
}

// TestUnitIO: systemd is told of bounds only for a chat that has any, in its own types.
func TestUnitIO(t *testing.T) {
	f := unitsFS("chatd")
	f.o.Dirs = []string{"/usr"}
	const id = chat.ID("0123456789abcdef")
	props := unitIO(f, id, chat.DefaultLimits())
	expect.True(t, props == nil, "without a bound there is %v", props)
	l := chat.DefaultLimits()
	l.IOWeight, l.IOReadBPS = 200, 1<<20
	disks, _ := f.disks()
	bound := []unitBound{}
	for _, disk := range disks {
		bound = append(bound, unitBound{"/dev/block/" + disk, 1 << 20})
	}
	got := map[string]string{}
	for _, p := range f.earlyProperties(id, l) {
		got[p.Name] = fmt.Sprintf("%s %v", p.Value.Signature(), p.Value.Value())
	}
	for name, want := range map[string]string{
		"IOWeight": "t 200", "IOReadIOPSMax": "a(st) []",
		"IOWriteBandwidthMax": "a(st) []", "IOWriteIOPSMax": "a(st) []",
		"IOReadBandwidthMax": fmt.Sprintf("a(st) %v", bound),
	} {
		expect.Equal(t, got[name], want, "%s", name)
	}
	all := names(f.properties(id, l, isAny))
	expect.True(t, slices.IsSorted(all) && len(all) == 10, "Limit sets %v: want ten in order", all)
}

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
	want := []string{"8:16 up", "8:0 to", "8:32 to"}
	expect.True(t, slices.Equal(lines, want), "written were %q, want %q", lines, want)
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
		got := bfqWeight(weight)
		expect.True(t, got == want, "%d is %s of BFQ, want %s", weight, got, want)
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
