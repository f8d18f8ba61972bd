package filerules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestPhysical(t *testing.T) {
	dir := Physical(t.TempDir())
	for _, d := range []string{"a/b", "c"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, d), 0o700))
	}
	for link, to := range map[string]string{"l": "a/b", "abs": dir + "/c", "up": "../x", "a/b/out": "../../c/l2", "c/l2": "../a", "loop": "loop", "self": ".", "dead": "nowhere/x"} {
		must.Do(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	for in, want := range map[string]string{
		"/a/b": "/a/b", "/l": "/a/b", "/l/new": "/a/b/new", "/l/..": "/a", "/l/../b": "/a/b", "/abs/f": "/c/f", "/l/out/z": "/a/z", "/self/self/l": "/a/b",
		"/dead": "/nowhere/x", "/no/l/x": "/no/l/x", "//a/./b/": "/a/b", "/loop/x": "/loop/x",
	} {
		if got := Physical(dir + in); got != dir+want {
			t.Errorf("%s: %s, want %s", in, strings.TrimPrefix(got, dir), want)
		}
		if real, err := filepath.EvalSymlinks(dir + in); err == nil && real != dir+want {
			t.Errorf("%s: the system says %s, the test wants %s", in, real, want)
		}
	}
	expect.Equal(t, Physical(dir+"/up/f"), filepath.Dir(dir)+"/x/f", "up")
	if got := Physical("/../.."); got != "/" {
		t.Error(got)
	}
}
