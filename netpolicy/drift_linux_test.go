package netpolicy

import "testing"

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
