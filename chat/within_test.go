package chat

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		p, dir string
		want   bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}, {"/", "/", true}, {"/", "/a", false},
		{"/a/b/c", "/a/b", true}, {"/b", "/a", false}, {"", "/a", false},
	} {
		if got := Within(c.p, c.dir); got != c.want {
			t.Errorf("%q within %q: %t", c.p, c.dir, got)
		}
	}
}
