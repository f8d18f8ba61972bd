package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestMendJumpFirst: whatever took the wall away, what comes back first is all that a packet of
// a chat meets, after one look at OUTPUT and nothing else. What was started is written down.
func TestMendJumpFirst(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
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
		found, err = table.Mend(t.Context())
		expect.True(t, err == nil && len(found) == 0, "%s: a second Mend found %q, %v", act, found, err)
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

// TestWatch changes the rules as a stranger would, and not at all.
func TestWatch(t *testing.T) {
	must.Root(t, "network namespaces and iptables")
	ctx, stop := context.WithCancel(t.Context())
	var seen, heard atomic.Int32
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		close(ready)
		ended <- Watch(ctx, func() { heard.Add(1) }, func(context.Context) { seen.Add(1) })
	}()
	<-ready
	tables := 0
	awaitSeen := func(want int32) {
		t.Helper()
		// Until the watch has begun, a change may pass unseen: change again.
		for end := time.Now().Add(2 * time.Minute); seen.Load() < want; time.Sleep(200 * time.Millisecond) {
			tables++
			must.Run(t, exec.Command("nft", "add", "table", "inet", fmt.Sprint("stranger", tables)))
			must.True(t, !time.Now().After(end), "none of %d changes was seen", tables)
		}
	}
	awaitSeen(1)
	calm := seen.Load()
	for end := time.Now().Add(2 * time.Minute); ; calm = seen.Load() { // a busy host tells of the last change late
		if time.Sleep(2 * pause); seen.Load() == calm {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("changes are seen while nobody changes anything, %d by now", seen.Load())
		}
	}
	awaitSeen(calm + 1)
	stop()
	expect.Is(t, <-ended, nil, "Watch ended with")
	if heard.Load() < 2 {
		t.Errorf("heard of %d changes, and looked %d times", heard.Load(), seen.Load())
	}
}

func TestChainDrift(t *testing.T) {
	was := map[string][]string{"OUTPUT": {"x"}, "CHATD": {"a", "b"}, "CHATD-P0": {}}
	for name, x := range map[string]struct {
		now  map[string][]string
		want int
	}{
		"the same":              {map[string][]string{"OUTPUT": {"y"}, "CHATD": {"a", "b"}, "CHATD-P0": {}}, 0},
		"flushed":               {map[string][]string{"CHATD": {}, "CHATD-P0": {}}, 1},
		"gone":                  {map[string][]string{"CHATD": {"a", "b"}}, 1},
		"swapped, and one more": {map[string][]string{"CHATD": {"b", "a"}, "CHATD-P0": {}, "CHATD-X": {}}, 2},
		"shorter":               {map[string][]string{"CHATD": {"a"}, "CHATD-P0": {}}, 1},
		"longer":                {map[string][]string{"CHATD": {"a", "b", "c"}, "CHATD-P0": {"d"}}, 2},
	} {
		got := chainDrift("IPv4", was, x.now)
		expect.True(t, len(got) == x.want, "%s: %q", name, got)
	}
}

// TestLooksOnce: however many chains there are, one program of each family lists them, and
// says of each what iptables -S CHAIN says.
func TestLooksOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, set tools) {
		logged, started := logStarts(t, set)
		table := newTable(t, logged)
		apply(t, table, manyPolicies(t, 40))
		want := []map[string][]string{chainByChain(t, set.iptables), chainByChain(t, set.ip6tables)}
		before := len(started())
		s := must.Get(table.look())(t)
		if lines := started()[before:]; len(lines) != 2 {
			t.Errorf("one look started %d programs, want 2:\n%s", len(lines), strings.Join(lines, ""))
		}
		for i, chains := range s {
			if !maps.EqualFunc(chains, want[i], slices.Equal) || len(chains) < 40 {
				t.Errorf("%s: %d chains:\n%q\nwant %d:\n%q", table.sides[i].name, len(chains), chains, len(want[i]), want[i])
			}
		}
	})
}

// chainByChain are the rules of OUTPUT and of chatd's chains, each listed by itself.
func chainByChain(t *testing.T, program string) map[string][]string {
	t.Helper()
	chains := map[string][]string{}
	for line := range strings.Lines(run(t, program+" -S 2>/dev/null")) {
		words := strings.Fields(line)
		if words[0] == "-A" || words[1] != "OUTPUT" && !isOurs(words[1]) {
			continue
		}
		rules := strings.Split(strings.TrimSpace(run(t, program+" -S "+words[1]+" 2>/dev/null")), "\n")
		chains[words[1]] = rules[1:] // after the chain's own line
	}
	return chains
}
