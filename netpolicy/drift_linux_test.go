package netpolicy

import (
	"strings"
	"testing"
)

// FuzzParseRules: whatever iptables -S prints, only OUTPUT and chatd's own chains
// come out, and every kept rule is a line of the listing.
func FuzzParseRules(f *testing.F) {
	f.Add("-P OUTPUT ACCEPT\n-N CHATD\n-N CHATD-NO\n-A OUTPUT -m owner --uid-owner 1-2 -j CHATD\n-A CHATD-NO -j DROP\n-A FORWARD -j DROP\n")
	f.Add("# Warning: iptables-legacy tables present\n-A\n\n-N CHATDX")
	f.Fuzz(func(t *testing.T, listing string) {
		for chain, rules := range parseRules(listing) {
			if chain != "OUTPUT" && !isOurs(chain) {
				t.Errorf("kept the chain %q", chain)
			}
			for _, r := range rules {
				if !strings.Contains(listing, r) || !strings.HasPrefix(r, "-A") {
					t.Errorf("%q is not in the listing", r)
				}
			}
			jumpDrift("IPv4", rules, Range{1, 2})
		}
	})
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
		if got := chainDrift("IPv4", was, x.now); len(got) != x.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
