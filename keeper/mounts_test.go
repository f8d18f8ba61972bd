package keeper

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// TestComparePaths: the order is that of the lists of names.
func TestComparePaths(t *testing.T) {
	paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a-b", "/a.b", "/a b", "/ab", "/a/\x01", "/b", "/a/b-", "/Ä"}
	for _, a := range paths {
		for _, b := range paths {
			want := slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
			if got := ComparePaths(a, b); got != cmp.Compare(want, 0) {
				t.Errorf("%q, %q: %d, want %d", a, b, got, want)
			}
		}
	}
}
