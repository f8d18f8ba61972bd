package roottest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestSocketsAreBounded has a chat take all the kernel memory that sockets and locks give, in ten
// processes: more of them meet the memory limit. Where nothing else counts it, its session ends
// with the reason in the audit log, and the host gets the memory back. How much it takes until
// chatd polls depends on the machine's load.
func TestSocketsAreBounded(t *testing.T) {
	needsRoot(t)
	alone(t) // it measures the memory of the kernel
	opt := options(t)
	m := open(t, opt)
	const held, locks = "its sockets", "record locks"
	for profile, takes := range map[string]map[string]string{
		"default": {"waiting connections": held, "unfinished datagrams": held, "hidden datagrams": held,
			"queued datagrams": "", "copies of datagrams": held, "locks": locks}, // queues are charged
	} {
		for what, reason := range takes {
			t.Run(profile+"/"+what, func(t *testing.T) {
				a := inmateOf(t, m, what+" "+profile, profile)
				before, worst := kernelMemory(t), int64(0)
				a.start(t, "take", what, "10")
				began, end := time.Now(), time.Now().Add(longEnough)
				if reason == "" {
					end = time.Now().Add(3 * time.Second)
				}
				for awake(t, a) && time.Now().Before(end) {
					worst = max(worst, kernelMemory(t)-before)
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
					return kernelMemory(t)-before < limit/4
				})
			})
		}
	}
}

// start begins an act in a background run.
func (i inmate) start(t testing.TB, args ...string) {
	t.Helper()
	must.Get(i.m.StartRun(operator(t.Context()), i.ID, chat.RunSpec{Argv: append([]string{i.program}, args...), Timeout: chat.MaxTimeout}))(t)
}

func awake(t testing.TB, i inmate) bool {
	t.Helper()
	c := must.Get(i.m.Get(operator(t.Context()), i.ID))(t)
	return c.Awake
}

// kernelMemory is what no program and no file has, and no cache: slab, pages of sockets, page
// tables. Inodes and directory entries are left out, which whatever reads files makes.
func kernelMemory(t testing.TB) int64 {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/meminfo"))(t)
	kib := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			kib[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	free := kib["MemFree:"] + kib["Buffers:"] + kib["Cached:"] + kib["SReclaimable:"]
	return (kib["MemTotal:"] - free - kib["AnonPages:"]) << 10
}

// takeWaiting takes memory by connections that are never accepted, and succeeds if the chat may
// hold three times its limit. The test stops it there, with what it holds: how much it takes until
// chatd polls depends on the machine's load.
func takeWaiting(t *testing.T, m *manager) string {
	a := inmateOf(t, m, "sockets", "small")
	before := kernelMemory(t)
	a.start(t, "take", "waiting connections", "2")
	for awake(t, a) {
		grown := kernelMemory(t) - before
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
			if comes(func() bool { return !awake(t, a) }) {
				return "ended"
			}
		} else if time.Sleep(3 * time.Second); !awake(t, a) { // in which there would be 12 looks
			return "ended"
		}
		return fmt.Sprintf("ok %d MiB", grown>>20)
	}
	return "ended"
}
