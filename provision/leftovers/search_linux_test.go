package leftovers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSearch: a search names a chat's files once, also in directories that lie in each other, and
// follows no link that another chat can make there. It says that it did not see all of too many.
func TestSearch(t *testing.T) {
	must.Root(t, "it acts as a uid")
	const uid = 1999990000
	top, other := t.TempDir(), t.TempDir()
	owned := func(name string) string {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o600),
			os.Chown(name, uid, uid))
		return name
	}
	want := []string{owned(top + "/a/b/c"), owned(top + "/d")}
	owned(other + "/bait")
	must.Do(t, os.Symlink(other, top+"/link"), os.Symlink(other, top+"/a/exposed"))
	dirs := []string{top, top + "/a", top + "/a/exposed", top + "/none"}
	var found []string
	all := Search(uid, dirs, func(path string) { found = append(found, path) })
	if slices.Sort(found); !slices.Equal(found, want) || !all {
		t.Errorf("found %q, all: %v", found, all)
	}
	expect.True(t, !Search(uid, slices.Repeat(dirs, MaxLooks/5), func(string) {}),
		"the search says that it saw all of too many")
}
