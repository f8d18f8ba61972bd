//go:build e2e

package vagrant

import (
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// TestHostPids forks past the limit: the kernel refuses, and the chat goes on.
func TestHostPids(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	dir := cgroupOf(t, unitOf(c.ID))
	before := counter(t, "max", dir, "pids.events")
	r := run(t, c.ID, "i=0; while [ $i -lt 200 ]; do sleep 100 & i=$((i+1)); done; echo all $i")
	if strings.Contains(r.Stdout, "all 200") {
		t.Errorf("200 forks went through a limit of 80: %+v", r)
	}
	if refusals := counter(t, "max", dir, "pids.events") - before; refusals < 1 {
		t.Errorf("pids.events counts %d refusals", refusals)
	}
	if u := get(t, c.ID).Usage; u == nil || u.PidsRefused < 1 {
		t.Errorf("the API does not tell of it: %+v", u)
	}
	// The control: fewer than the limit are no trouble, and the bomb is gone.
	if got := said(t, c.ID, "i=0; while [ $i -lt 30 ]; do sleep 100 & i=$((i+1)); done; echo all $i"); got != "all 30" {
		t.Errorf("30 forks: %q", got)
	}
}

// TestHostMemory: a hog loses its run, not the terminal; a smaller one loses
// nothing.
func TestHostMemory(t *testing.T) {
	useProfiles(t)
	c := create(t, "small")
	before := sessionOf(t, c.ID)
	shells := namesIn(t, c, "bash")
	r := run(t, c.ID, `sleep 300 & python3 -c 'x = b"x" * (100 << 20); print("fits")'`)
	if !r.OOMKilled || strings.Contains(r.Stdout, "fits") || r.Signal != "SIGKILL" {
		t.Errorf("a hog of 100 MiB below 64: %+v", r)
	}
	if after := sessionOf(t, c.ID); after != before {
		t.Errorf("the session was %+v and is %+v", before, after)
	}
	if got := namesIn(t, c, "bash"); got != shells || got == "" {
		t.Errorf("the terminal's shell was %q and is %q", shells, got)
	}
	if got := namesIn(t, c, "sleep"); got != "" {
		t.Errorf("the rest of the run lives: %s", got)
	}
	if got := said(t, c.ID, `python3 -c 'x = b"x" * (8 << 20); print("fits")'`); got != "fits" {
		t.Errorf("8 MiB: %q", got)
	}
	if n := counter(t, "oom_kill", cgroupOf(t, unitOf(c.ID)), "memory.events"); n < 1 {
		t.Error("memory.events of the unit counts nothing: the hog ended by something else")
	}
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
	if n := counter(t, "nr_throttled", dir, "cpu.stat"); n < 1 {
		t.Error("nobody was throttled")
	}
	out := shell(t, "("+spin+"); times")
	t.Logf("the chat took %.2f of a CPU; root's loop: %s", share, strings.ReplaceAll(out, "\n", " "))
	if strings.Contains(out, "0m0.") && strings.Count(out, "0m0.") == 4 {
		t.Errorf("the same loop costs root nothing, so it shows nothing: %s", out)
	}
}
