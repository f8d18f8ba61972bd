package sys

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	page := uint64(os.Getpagesize())
	for in, want := range map[string]Stat{
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 4242 0 3":     {"sh", 'S', 4194304, 4242, 3 * time.Second, 3 * page},
		"7 (a) Z 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4243 0 0": {"a) Z 1 (b", 'S', 4194304, 4243, 0, 0},
	} {
		if got, err := parseStat(in); err != nil || got != want {
			t.Errorf("parseStat(%q) = %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "7", "7 (sh)", "7 (sh) S", "7 )sh( S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 7 0 0",
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 x 0 0",
		"7 (sh) S 1 7 7 0 -1 x 1 0 0 0 0 0 0 0 20 0 1 0 7 0 0",
		"7 (sh) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 7 0 -1",
	} {
		if _, err := parseStat(in); err == nil {
			t.Errorf("parseStat(%q) gave no error", in)
		}
	}
}
