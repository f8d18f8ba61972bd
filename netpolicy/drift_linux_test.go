package netpolicy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
)

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
		if got := chainDrift("IPv4", was, x.now); len(got) != x.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLooksOnce: however many chains there are, one program of each family lists them, and
// says of each what iptables -S CHAIN says.
func TestLooksOnce(t *testing.T) {
	needsRoot(t)
	for name, set := range backends() {
		t.Run(name, func(t *testing.T) {
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
