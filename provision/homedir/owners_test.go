package homedir

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestOwners: each owner has one path; a missing directory, and the remains of a try, have none.
func TestOwners(t *testing.T) {
	dir, uid := t.TempDir(), uint32(os.Getuid())
	missing := filepath.Join(dir, "missing")
	tried, home := filepath.Join(dir, triedName), filepath.Join(dir, "home")
	if err := os.Mkdir(tried, 0o700); err != nil {
		t.Fatal(err)
	}
	if owners, err := Owners(dir, missing); err != nil || len(owners) > 0 {
		t.Errorf("%v, %v", owners, err)
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	want := map[uint32]string{uid: home}
	if uid == 0 { // root may give a directory away
		link := filepath.Join(dir, "link")
		if err := os.Symlink(home, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(link, 4000000002, 4000000002); err != nil {
			t.Fatal(err)
		}
		want[4000000002] = link
	}
	owners, err := Owners(missing, dir)
	if err != nil || !maps.Equal(owners, want) {
		t.Errorf("%v, want %v: %v", owners, want, err)
	}
	if _, err := Owners(home, "/proc/self/comm"); err == nil {
		t.Error("a file was listed")
	}
}
