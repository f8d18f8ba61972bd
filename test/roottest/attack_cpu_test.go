package roottest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if u := usage(t, b); u.OOMKills+u.PidsRefused > 0 {
		t.Errorf("B suffers from A's bombs: %+v", u)
	}
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
	if n := usage(t, a).Pids; n < 100 {
		t.Errorf("control: A has %d tasks", n)
	}
}

// spin has a chat spin until the test ends, and returns once all its processes are there.
func spin(t *testing.T, i inmate, processes int) {
	t.Helper()
	had := usage(t, i).Pids
	ctx, cancel := context.WithCancel(operator(context.Background()))
	ended := make(chan error, 1)
	go func() {
		argv := []string{i.program, "crowd", fmt.Sprint(processes), fmt.Sprint(anyCPU(t))}
		_, err := i.m.Run(ctx, i.ID, chat.RunSpec{Argv: argv, Timeout: chat.MaxTimeout})
		ended <- err
	}()
	t.Cleanup(func() { cancel(); <-ended })
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
	ctx, cancel := context.WithCancel(operator(context.Background()))
	ended := make(chan error, 1)
	go func() {
		_, err := a.m.Run(ctx, a.ID, chat.RunSpec{Argv: []string{a.program, "bombs"}, Timeout: chat.MaxTimeout})
		ended <- err
	}()
	defer func() { cancel(); <-ended }()
	awaitBombs(t, a)
	f()
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
			needsRoot(b)
			opt := options(b)
			p := opt.Profiles["default"]
			p.Limits.CPUPeriod, p.Limits.CPUQuota = chat.Duration(period), chat.Duration(period/4)
			opt.Profiles["default"] = p
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
