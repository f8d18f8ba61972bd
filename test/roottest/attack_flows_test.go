package roottest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// trackedNow is how many flows the kernel tracks in this network namespace.
func trackedNow(t *testing.T) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"))(t)
	n := must.Get(strconv.Atoi(strings.TrimSpace(string(b))))(t)
	return n
}

// TestAttackFlows: a chat that sends datagrams from one port after the other fills its part of the
// table of tracked flows and no more, and another chat goes on. Without the bound it fills more; on a
// slow host some flows end before they are counted.
func TestAttackFlows(t *testing.T) {
	newInternet(t)
	const many, bound = 400, 100
	for _, c := range []struct {
		name          string
		max, from, to int
	}{{"with", bound, 0, bound}, {"without", 1 << 20, bound + 1, 2 * many}} {
		t.Run(c.name, func(t *testing.T) {
			opt := named(t, usual...)
			opt.MaxFlows = c.max
			m := open(t, opt)
			a, b := inmateOf(t, m, "greedy", "named"), inmateOf(t, m, "other", "named")
			before := trackedNow(t)
			if got := a.try(t, "flows", strconv.Itoa(many), "203.0.113.2:123"); got != "ok done" {
				t.Fatal(got)
			}
			outcomes(t, "another chat, by name", b.try(t, "say", "api.example.test:7000", "x"), "ok")
			if n := trackedNow(t) - before; n < c.from || n > c.to {
				t.Errorf("%d more flows are tracked, want %d to %d", n, c.from, c.to)
			}
			h := must.Get(m.Host(operator(t.Context())))(t)
			for _, l := range h.Layers {
				if l.Name == "egress" {
					t.Log(l.Probe)
					if refused := strings.Contains(l.Probe, "more were refused"); refused != (c.max == bound) ||
						!strings.Contains(l.Probe, "chats began ") {
						t.Errorf("layer egress says %s", l.Probe)
					}
				}
			}
		})
	}
}
