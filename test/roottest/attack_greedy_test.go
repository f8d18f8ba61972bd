package roottest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackSpace: what lies in memory has a size, and what is full for A is
// not full for B.
func TestAttackSpace(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := inmateOf(t, m, "space a", "default"), inmateOf(t, m, "space b", "default")
	for _, dir := range []string{"/run/chat", "/dev/shm"} {
		t.Run(dir, func(t *testing.T) {
			outcomes(t, "A", a.try(t, "fill", dir, fmt.Sprint(64<<20)), "ENOSPC")
			outcomes(t, "control: 512 KiB", b.try(t, "fill", dir, fmt.Sprint(512<<10)), "ok")
		})
	}
	t.Run("the rest", func(t *testing.T) {
		for _, dir := range []string{"/", "/etc", "/opt", "/opt/chatd", "/run", "/dev", "/usr"} {
			outcomes(t, dir, a.try(t, "fill", dir, "1"), "EROFS EACCES")
		}
	})
	t.Run("prompt fifo", func(t *testing.T) {
		got := a.try(t, "flood-prompt", "/opt/chatd/prompt")
		var kib int
		expect.True(t, expect.Err(fmt.Sscanf(got, "ok %d", &kib)) == nil && kib >= 4 && kib <= 1024,
			"A: %s KiB, want at most a pipe", got)
		for _, step := range []func(context.Context, chat.ID) (chat.Chat, error){m.Sleep, m.Wake} {
			expect.NoError(t, expect.Err(step(operator(t.Context()), a.ID)))
		}
	})
}

// TestAttackReap: A leaves files in its home to break the reap, or to make it remove something
// else.
func TestAttackReap(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a, b := inmateOf(t, m, "reap a", "default"), inmateOf(t, m, "reap b", "default")
	b.sh(t, "echo keep >note")
	const kept = "/srv/keep"
	must.Do(t, os.MkdirAll(kept+"/me", 0o777))
	t.Cleanup(func() { os.RemoveAll(kept) })
	for _, dir := range []string{a.Home, "/tmp", "/var/tmp"} {
		a.sh(t, "mkdir "+dir+"/deep "+dir+"/names; ln -s "+kept+" "+dir+"/keep; ln -s "+b.Home+" "+dir+"/b; ln -s /etc "+dir+"/etc")
		outcomes(t, "nest", a.try(t, "mkdirs", dir+"/deep", "3000"), "ok")
		outcomes(t, "names", a.try(t, "names", dir+"/names"), "ok")
	}
	// A does not stop while it is taken away.
	a.typeLine(t, "while :; do mkdir -p ~/x/y; mv ~/x ~/z; ln -s "+kept+" ~/x; rm -rf ~/z ~/x; done")
	must.Do(t, m.Reap(operator(t.Context()), a.ID))
	tmp, varTmp := privateTrees(opt, a.Chat)
	for _, gone := range []string{a.Home, tmp, varTmp} {
		if _, err := os.Lstat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
	for _, there := range []string{kept + "/me", b.in("note"), "/etc/passwd"} {
		expect.Is(t, expect.Err(os.Lstat(there)), nil, "reap took more than A")
	}
	left, err := exec.Command("find", filepath.Dir(opt.State), "-uid", fmt.Sprint(a.UID)).Output()
	expect.True(t, err == nil && strings.TrimSpace(string(left)) == "",
		"files of uid %d are left: %s, %v", a.UID, left, err)
}

// TestAttackBombs: while A forks and allocates without end, the kernel stops it once its quota is
// used up, or A gets less than that on a busy host, and nothing is refused to B. The CPU time itself
// is no measure: one system call and a death run over the quota and are paid back later (specs/0002,
// cpu), which once was five times the quota for nine seconds. BenchmarkBombs measures how much longer
// B waits.
func TestAttackBombs(t *testing.T) {
	m := open(t, options(t)) // with the default limits
	a, b := inmateOf(t, m, "bombs a", "default"), inmateOf(t, m, "bombs b", "default")
	limits := chat.DefaultLimits()
	before, began := usage(t, a), time.Now()
	underBombs(t, a, func() {
		for range 60 {
			b.sh(t, "true")
		}
		until(t, "A is stopped by its quota in two more periods, or gets less", func() bool {
			u, wall := usage(t, a), time.Since(began)
			quota := wall * limits.CPUQuota.D() / limits.CPUPeriod.D()
			return u.Throttled >= before.Throttled+2 || wall > 4*limits.CPUPeriod.D() && (u.CPU-before.CPU).D() < quota
		})
	})
	t.Logf("A took %v of CPU time in %v", (usage(t, a).CPU - before.CPU).D(), time.Since(began))
	u := usage(t, b)
	expect.True(t, u.OOMKills+u.PidsRefused <= 0, "B suffers from A's bombs: %+v", u)
}

// TestAttackShare: 100 processes of A get no more of a CPU than one of B, also where
// no quota holds A.
func TestAttackShare(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := inmateOf(t, m, "share a", "default"), inmateOf(t, m, "share b", "default")
	for _, spinning := range []struct {
		inmate
		processes int
	}{{a, 100}, {b, 1}} {
		spin(t, spinning.inmate, spinning.processes)
	}
	a0, b0 := usage(t, a).CPU, usage(t, b).CPU
	var gotA, gotB time.Duration
	until(t, "control: one got 1 s of CPU time", func() bool {
		gotA, gotB = (usage(t, a).CPU - a0).D(), (usage(t, b).CPU - b0).D()
		return max(gotA, gotB) > time.Second
	})
	t.Logf("A's 100 processes got %v, B's one %v", gotA, gotB)
	expect.True(t, gotB >= gotA/2, "A's 100 processes got %v of a CPU, B's one %v", gotA, gotB)
	n := usage(t, a).Pids
	expect.True(t, n >= 100, "control: A has %d tasks", n)
}

// spin has a chat spin until the test ends, and returns once all its processes are there.
func spin(t *testing.T, i inmate, processes int) {
	t.Helper()
	had := usage(t, i).Pids
	t.Cleanup(i.acting("crowd", fmt.Sprint(processes), fmt.Sprint(anyCPU(t))))
	until(t, fmt.Sprintf("control: chat %s has %d tasks more than %d", i.ID, processes, had), func() bool { return usage(t, i).Pids >= had+uint64(processes) })
}

// anyCPU is the number of a CPU that this process may run on.
func anyCPU(t *testing.T) int {
	var cpus unix.CPUSet
	expect.NoError(t, unix.SchedGetaffinity(0, &cpus))
	for cpu := range 1024 {
		if cpus.IsSet(cpu) {
			return cpu
		}
	}
	t.Error("no CPU")
	return 0
}

func usage(t testing.TB, i inmate) chat.Usage {
	t.Helper()
	c, err := i.m.Get(operator(t.Context()), i.ID)
	must.True(t, err == nil && c.Usage != nil, "no usage of %s: %v", i.ID, err)
	return *c.Usage
}

// underBombs does f while a forks and allocates, from when the kernel has refused it
// something.
func underBombs(t testing.TB, a inmate, f func()) {
	t.Helper()
	defer a.acting("bombs")()
	awaitBombs(t, a)
	f()
}

// acting keeps an act going in a run of its own until end is called.
func (i inmate) acting(args ...string) (end func()) {
	ctx, cancel := context.WithCancel(operator(context.Background()))
	ended := going(func() error {
		return expect.Err(i.m.Run(ctx, i.ID, chat.RunSpec{Argv: append([]string{i.program}, args...), Timeout: chat.MaxTimeout}))
	})
	return func() { cancel(); <-ended }
}

// awaitBombs waits until the kernel refuses A something.
func awaitBombs(t testing.TB, a inmate) {
	t.Helper()
	before := usage(t, a)
	until(t, "control: something is refused to the bombs", func() bool {
		u := usage(t, a)
		return u.OOMKills+u.PidsRefused > before.OOMKills+before.PidsRefused
	})
}

// BenchmarkBombs is how long a run of true takes in B while A forks and allocates without
// end, over how long it takes while A does nothing, in turns in one run, with the default
// limits and with the same quarter of a CPU in shorter periods.
//
//	go test ./test/roottest -run - -bench BenchmarkBombs -benchtime 1x
func BenchmarkBombs(b *testing.B) {
	for _, period := range []time.Duration{chat.DefaultLimits().CPUPeriod.D(), 100 * time.Millisecond} {
		b.Run("period="+period.String(), func(b *testing.B) {
			opt := options(b)
			edit(opt, "default", func(p *chat.Profile) {
				p.Limits.CPUPeriod, p.Limits.CPUQuota = chat.Duration(period), chat.Duration(period/4)
			})
			m := open(b, opt)
			bomber, other := inmateOf(b, m, "bombs a", "default"), inmateOf(b, m, "bombs b", "default")
			var calm, storm []time.Duration
			for range 8 {
				calm = append(calm, timesOfTrue(b, m, other)...)
				underBombs(b, bomber, func() { storm = append(storm, timesOfTrue(b, m, other)...) })
			}
			for _, percentile := range []int{50, 95, 99} {
				at, rival := timeAt(storm, percentile), timeAt(calm, percentile)
				fmt.Fprintf(os.Stderr, "%-32s p%d %8.2f ms = %6.2f x without bombs (%.2f ms)\n", b.Name(), percentile, at, at/rival, rival)
				b.ReportMetric(at/rival, fmt.Sprintf("p%d/calm", percentile))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// timesOfTrue is how long 60 runs of true took.
func timesOfTrue(t testing.TB, m *manager, i inmate) []time.Duration {
	t.Helper()
	var took []time.Duration
	for range 60 {
		began := time.Now()
		run(t, m, i.ID, "true")
		took = append(took, time.Since(began))
	}
	return took
}

// timeAt is in milliseconds.
func timeAt(took []time.Duration, percentile int) float64 {
	slices.Sort(took)
	return float64(took[len(took)*percentile/100].Microseconds()) / 1000
}

// TestAttackFullDisk: A fills the file system that chatd's own state is on, by its /tmp (no quota,
// SECURITY.md). Nothing begins then that could not be written down, and of what was refused nothing
// is left; but A can still be reaped, which gives the room back, and then everything goes on for B,
// its schedules too.
func TestAttackFullDisk(t *testing.T) {
	opt := attackOptions(t)
	if !onHost() { // where PAM knows the state's directory; there it is as large as the disk
		mount(t, "tmpfs", opt.State, "size=24m,mode=711")
	}
	clock := nine()
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock()})
	a, b := create(t, m, "full a", "default"), create(t, m, "full b", "default")
	s := scheduled(t, k, b.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "echo on"})
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "echo on; exec sleep 1000"})
	awaitOutput(t, m, a.ID, r.ID, "on")
	ctx := operator(t.Context())
	if !onHost() {
		run(t, m, a.ID, "cat /dev/zero >/tmp/fill")
		_, start := m.StartRun(ctx, b.ID, chat.RunSpec{Command: "echo begun >began"})
		_, run := m.Run(ctx, b.ID, chat.RunSpec{Command: "echo begun >began"})
		_, wait := m.InputWait(ctx, b.ID, chat.Input{Text: "echo begun >began\n", Wait: &chat.Wait{Until: chat.UntilPrompt}})
		_, schedule := k.AddSchedule(ctx, b.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "echo begun >began"})
		for what, err := range map[string]error{"a background run": start, "a run": run, "input": wait, "a schedule": schedule} {
			expect.Says(t, err, chat.ErrBusy, "reap a chat, or make room", "%s on a full disk", what)
		}
		if left := runLeaves(opt); strings.Count(fmt.Sprint(left), r.ID) != len(left) {
			t.Errorf("leaves besides that of %s: %v", r.ID, left)
		}
		expect.True(t, expect.Err(os.Lstat(filepath.Join(b.Home, "began"))) != nil,
			"something began that was not written down")
	}
	must.Do(t, m.Reap(ctx, a.ID))
	clock.move(70 * time.Second)
	got := waitScheduled(t, k, b.ID, s.ID, 1)
	expect.True(t, got.Last.Output == "on\n", "%+v", got.Last)
	if got := run(t, m, b.ID, "echo on"); got.Stdout != "on\n" {
		t.Errorf("%+v", got)
	}
	if left, gone := supervisors(t), runLeaves(opt); len(left)+len(gone) > 0 {
		t.Errorf("left of A: %v, %v", left, gone)
	}
}

// TestSocketsAreBounded has a chat take all the kernel memory that sockets and locks give, in ten
// processes: more of them meet the memory limit. Where nothing else counts it, its session ends
// with the reason in the audit log, and the host gets the memory back. How much it takes until
// chatd polls depends on the machine's load.
func TestSocketsAreBounded(t *testing.T) {
	alone(t) // it measures the memory of the kernel
	opt := options(t)
	m := open(t, opt)
	const held, locks = "its sockets", "record locks"
	for what, reason := range map[string]string{
		"waiting connections": held, "unfinished datagrams": held, "hidden datagrams": held,
		"queued datagrams": "", "copies of datagrams": held, "locks": locks, // queues are charged
	} {
		t.Run(what, func(t *testing.T) {
			a := inmateOf(t, m, what, "default")
			before, worst := kernelMemory(), int64(0)
			a.start(t, "take", what, "10")
			began, end := time.Now(), time.Now().Add(longEnough)
			if reason == "" {
				end = time.Now().Add(3 * time.Second)
			}
			for isAwake(t, a.m, a.Chat) && time.Now().Before(end) {
				worst = max(worst, kernelMemory()-before)
				time.Sleep(20 * time.Millisecond)
				if time.Since(began) > 30*time.Second && worst < int64(a.Limits.MemoryMax)/2 {
					// Its processes met the memory limit first: it tries again.
					began = time.Now()
					must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
					must.Get(m.Wake(operator(t.Context()), a.ID))(t)
					a.start(t, "take", what, "10")
				}
			}
			t.Logf("the kernel's memory grew by %d MiB", worst>>20)
			limit := 2 * int64(a.Limits.MemoryMax)
			if reason == "" { // the memory limit is its wall, and may leave the session alone
				if worst > limit {
					t.Errorf("the kernel's memory grew by %d MiB, want at most %d", worst>>20, limit>>20)
				}
				return
			}
			until(t, "the reason is audited", func() bool {
				return len(auditLines(t, opt, string(a.ID), `"sleep"`, reason)) == 1
			})
			until(t, "the kernel has its memory back", func() bool {
				return kernelMemory()-before < limit/4
			})
		})
	}
}

// start begins an act in a background run.
func (i inmate) start(t testing.TB, args ...string) {
	t.Helper()
	must.Get(i.m.StartRun(operator(t.Context()), i.ID, chat.RunSpec{Argv: append([]string{i.program}, args...), Timeout: chat.MaxTimeout}))(t)
}

// kernelMemory is what no program and no file has, and no cache: slab, pages of sockets, page
// tables. Inodes and directory entries are left out, which whatever reads files makes.
func kernelMemory() int64 {
	of := func(key string) int64 { return int64(kilobytes("/proc/meminfo", key)) }
	free := of("MemFree") + of("Buffers") + of("Cached") + of("SReclaimable")
	return (of("MemTotal") - free - of("AnonPages")) << 10
}

// takeWaiting takes memory by connections that are never accepted, and succeeds if the chat may
// hold three times its limit. The test stops it there, with what it holds: how much it takes until
// chatd polls depends on the machine's load.
func takeWaiting(t *testing.T, m *manager) string {
	a := inmateOf(t, m, "sockets", "small")
	before := kernelMemory()
	a.start(t, "take", "waiting connections", "2")
	for isAwake(t, a.m, a.Chat) {
		grown := kernelMemory() - before
		if grown < 3*int64(a.Limits.MemoryMax) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		// A session that has ended meanwhile has no process left to stop.
		_ = exec.Command("pkill", "-STOP", "-U", fmt.Sprint(a.UID), "-f", "waiting connections").Run()
		isOff := func(l chat.Layer) bool {
			return l.Name == chat.LayerSockets && l.State == chat.LayerOff
		}
		if !slices.ContainsFunc(a.Layers, isOff) {
			if comes(func() bool { return !isAwake(t, a.m, a.Chat) }) {
				return "ended"
			}
		} else if time.Sleep(3 * time.Second); !isAwake(t, a.m, a.Chat) { // in which there would be 12 looks
			return "ended"
		}
		return fmt.Sprintf("ok %d MiB", grown>>20)
	}
	return "ended"
}
