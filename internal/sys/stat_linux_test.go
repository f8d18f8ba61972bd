package sys

import "testing"

func TestParseStat(t *testing.T) {
	for in, want := range map[string]Stat{
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0":        {'S', 4194304, 4242},
		"7 (a) Z 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4243 0": {'S', 4194304, 4243},
	} {
		if got, err := parseStat(in); err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "7", "7 (sh)", "7 (sh) S",
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 x 0",
		"7 (sh) S 1 7 7 0 -1 x 1 0 0 0 0 0 0 0 20 0 1 0 7 0",
	} {
		if _, err := parseStat(in); err == nil {
			t.Errorf("parseStat(%q) gave no error", in)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 0")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = parseStat(s) })
}
