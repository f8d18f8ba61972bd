package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestMendJumpFirst: whatever took the wall away, what comes back first is all that a packet of
// a chat meets, after one look at OUTPUT and nothing else. What was started is written down.
func TestMendJumpFirst(t *testing.T) {
	needsRoot(t)
	logged, started := logStarts(t, hostTools)
	table := must.Get(open(Options{Range: Range{Low: 70000, High: 70999}, ProbeUID: 70999}, logged))(t)
	policies := []Policy{{Profile: "a", Blocks: []Range{{70000, 70099}}}}
	must.Do(t, table.Apply(t.Context(), policies))
	t.Cleanup(func() {
		err := table.Remove(context.Background())
		if out, ferr := exec.Command("iptables", "-F").CombinedOutput(); errors.Join(err, ferr) != nil { // the ACCEPT
			t.Errorf("%v, %v: %s", err, ferr, out)
		}
	})
	for _, act := range []string{
		"iptables -F", "ip6tables -F; iptables -F", "nft flush ruleset", "iptables -I OUTPUT 1 -j ACCEPT", "iptables -D OUTPUT 1", "iptables -F CHATD-NO",
		"iptables -A CHATD-WHO -j ACCEPT", "iptables -N CHATD-X",
	} {
		must.Run(t, exec.Command("sh", "-c", act))
		earlier := len(started())
		found, err := table.Mend(t.Context())
		expect.True(t, err == nil && len(found) != 0, "%s: found %q: %v", act, found, err)
		before, _, restored := strings.Cut(strings.Join(started()[earlier:], ""), "-restore")
		if n := strings.Count(before, "\n"); strings.Contains(act, "OUTPUT") && (!restored || n > 2) {
			t.Errorf("%s: before anything was put back these were started:\n%s", act, before)
		}
		if drift, err := table.Drift(); err != nil || len(drift) > 0 {
			t.Errorf("%s: after Mend: %q, %v", act, drift, err)
		}
		if found, err := table.Mend(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("%s: a second Mend found %q, %v", act, found, err)
		}
	}
}

// logStarts is a set of programs each of which writes its arguments down before it runs, and
// the lines that were written so far.
func logStarts(t *testing.T, set tools) (logged tools, started func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "started")
	for _, p := range []struct {
		to   *string
		name string
	}{
		{&logged.iptables, set.iptables}, {&logged.ip6tables, set.ip6tables},
		{&logged.restore4, set.restore4}, {&logged.restore6, set.restore6},
	} {
		real := must.Get(exec.LookPath(p.name))(t)
		*p.to = filepath.Join(dir, p.name)
		text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexec %s \"$@\"\n", p.name, log, real)
		must.Do(t, os.WriteFile(*p.to, []byte(text), 0o755))
	}
	return logged, func() []string {
		b := must.Get(os.ReadFile(log))(t)
		return slices.Collect(strings.Lines(string(b)))
	}
}
