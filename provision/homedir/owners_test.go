package homedir

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOwners: each owner has one path; a missing directory, and the remains of a try, have none.
func TestOwners(t *testing.T) {
	dir, uid := t.TempDir(), uint32(os.Getuid())
	missing := filepath.Join(dir, "missing")
	tried, home := filepath.Join(dir, triedName), filepath.Join(dir, "home")
	must.Do(t, os.Mkdir(tried, 0o700))
	if owners, err := Owners(dir, missing); err != nil || len(owners) > 0 {
		t.Errorf("%v, %v", owners, err)
	}
	must.Do(t, os.Mkdir(home, 0o700))
	want := map[uint32]string{uid: home}
	if uid == 0 { // root may give a directory away
		link := filepath.Join(dir, "link")
		must.Do(t, os.Symlink(home, link))
		must.Do(t, os.Lchown(link, 4000000002, 4000000002))
		want[4000000002] = link
	}
	owners, err := Owners(missing, dir)
	expect.True(t, err == nil && maps.Equal(owners, want), "%v, want %v: %v", owners, want, err)
	if _, err := Owners(home, "/proc/self/comm"); err == nil {
		t.Error("a file was listed")
	}
}
