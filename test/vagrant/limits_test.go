//go:build e2e

package vagrant

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestHostPids forks past the limit: the kernel refuses and counts, the API tells
// of it, and the chat goes on.
func TestHostPids(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	dir := cgroupOf(t, unitOf(c.ID))
	ended := make(chan chat.RunResult, 1)
	go func() {
		ctx, cancel := bounded(timeout)
		defer cancel()
		r, err := asker.Run(ctx, c.ID, chat.RunSpec{Argv: []string{"python3", "-c", bomb}})
		expect.NoError(t, err)
		ended <- r
	}()
	eventually(t, timeout, "the API counts refusals", func() bool {
		u := get(t, c.ID).Usage
		return len(ended) > 0 || u != nil && u.PidsRefused > 0
	})
	if n, err := strconv.Atoi(content(t, dir, "pids.current")); err != nil || n > 80 || n < 20 {
		t.Errorf("%d tasks under a limit of 80", n)
	}
	r := <-ended
	if n, err := strconv.Atoi(strings.TrimSpace(r.Stdout)); err != nil || n < 20 || n >= 80 {
		t.Errorf("%d forks went through a limit of 80: %+v", n, r)
	}
	// The control: fewer than the limit are no trouble, and the bomb is gone.
	expect.Equal(t, said(t, c.ID, "i=0; while [ $i -lt 30 ]; do sleep 100 & i=$((i+1)); done; echo all $i"), "all 30",
		"30 forks")
}

// bomb forks up to 200 times and says how often it could; kernels before 6.11
// count refusals where they happened, so it stays a while.
const bomb = `
import os, time
n = 0
try:
    while n < 200:
        if os.fork() == 0:
            time.sleep(100)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n, flush=True)
time.sleep(10)
`

// TestHostMemory: a hog loses its run, not the terminal; a smaller one loses
// nothing.
func TestHostMemory(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	before := sessionOf(t, c.ID)
	shells := namesIn(t, c, "bash")
	r := run(t, c.ID, `sleep 300 & python3 -c 'x = b"x" * (100 << 20); print("fits")'`)
	expect.True(t, r.OOMKilled && !strings.Contains(r.Stdout, "fits") && r.Signal == "SIGKILL",
		"a hog of 100 MiB below 64: %+v", r)
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
	if got := namesIn(t, c, "bash"); got != shells || got == "" {
		t.Errorf("the terminal's shell was %q and is %q", shells, got)
	}
	expect.Equal(t, namesIn(t, c, "sleep"), "", "the rest of the run lives")
	expect.Equal(t, said(t, c.ID, `python3 -c 'x = b"x" * (8 << 20); print("fits")'`), "fits", "8 MiB")
	expect.True(t, counter(t, "oom_kill", cgroupOf(t, unitOf(c.ID)), "memory.events") >= 1,
		"memory.events of the unit counts nothing: the hog ended by something else")
}

// namesIn are the pids of the chat's processes of a name.
func namesIn(t testing.TB, c chat.Chat, name string) string {
	t.Helper()
	var pids []string
	for _, pid := range members(t, cgroupOf(t, unitOf(c.ID))) {
		if commandOf(pid) == name {
			pids = append(pids, pid)
		}
	}
	return strings.Join(pids, " ")
}

// TestHostCPU spins in a chat that may have a quarter of one CPU, and as root,
// who may have all of it.
func TestHostCPU(t *testing.T) {
	c := create(t, "")
	dir := cgroupOf(t, unitOf(c.ID))
	const spin = "end=$(($(date +%s)+9)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; done"
	used := counter(t, "usage_usec", dir, "cpu.stat")
	begin := time.Now()
	r := run(t, c.ID, spin)
	share := float64(counter(t, "usage_usec", dir, "cpu.stat")-used) / float64(time.Since(begin).Microseconds())
	if r.Exit != 0 || share > 0.4 {
		t.Errorf("a chat of a quarter CPU took %.2f: %+v", share, r)
	}
	expect.True(t, counter(t, "nr_throttled", dir, "cpu.stat") >= 1, "nobody was throttled")
	out := shell(t, "("+spin+"); times")
	t.Logf("the chat took %.2f of a CPU; root's loop: %s", share, strings.ReplaceAll(out, "\n", " "))
	if strings.Contains(out, "0m0.") && strings.Count(out, "0m0.") == 4 {
		t.Errorf("the same loop costs root nothing, so it shows nothing: %s", out)
	}
}
