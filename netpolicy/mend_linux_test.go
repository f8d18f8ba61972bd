package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMendJumpFirst: whatever took the wall away, what comes back first is all that a packet of
// a chat meets, after one look at OUTPUT and nothing else. What was started is written down.
func TestMendJumpFirst(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	var logged tools
	for _, p := range []struct {
		to   *string
		name string
	}{{&logged.iptables, hostTools.iptables}, {&logged.ip6tables, hostTools.ip6tables}, {&logged.restore4, hostTools.restore4}, {&logged.restore6, hostTools.restore6}, {&logged.nft, hostTools.nft}} {
		real, err := exec.LookPath(p.name)
		if err != nil {
			t.Fatal(err)
		}
		*p.to = filepath.Join(dir, p.name)
		text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexec %s \"$@\"\n", p.name, started, real)
		if err := os.WriteFile(*p.to, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	table, err := open(Options{Range: Range{Low: 70000, High: 70999}, ProbeUID: 70999}, logged)
	if err != nil {
		t.Fatal(err)
	}
	policies := []Policy{{Profile: "a", Blocks: []Range{{70000, 70099}}}}
	if err := table.Apply(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := table.Remove(context.Background())
		if out, ferr := exec.Command("iptables", "-F").CombinedOutput(); errors.Join(err, ferr) != nil { // the ACCEPT
			t.Errorf("%v, %v: %s", err, ferr, out)
		}
	})
	for _, act := range []string{
		"iptables -F", "ip6tables -F; iptables -F", "nft flush ruleset", "iptables -I OUTPUT 1 -j ACCEPT", "iptables -D OUTPUT 1", "iptables -F CHATD-NO",
		"iptables -A CHATD-WHO -j ACCEPT", "iptables -N CHATD-X", "nft delete table inet chatd",
	} {
		if out, err := exec.Command("sh", "-c", act).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", act, err, out)
		}
		if err := os.WriteFile(started, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := table.Mend(t.Context())
		if err != nil || len(found) == 0 {
			t.Errorf("%s: found %q: %v", act, found, err)
		}
		b, err := os.ReadFile(started)
		if err != nil {
			t.Fatal(err)
		}
		before, _, restored := strings.Cut(string(b), "-restore")
		if n := strings.Count(before, "\n"); strings.Contains(act, "OUTPUT") && (!restored || n > 2 || strings.Contains(before, "nft")) {
			t.Errorf("%s: before anything was put back these were started:\n%s", act, before)
		}
		if drift, err := table.Drift(t.Context()); err != nil || len(drift) > 0 {
			t.Errorf("%s: after Mend: %q, %v", act, drift, err)
		}
		if found, err := table.Mend(t.Context()); err != nil || len(found) > 0 {
			t.Errorf("%s: a second Mend found %q, %v", act, found, err)
		}
	}
}
