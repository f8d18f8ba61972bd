package enforce

import (
	"net"
	"path/filepath"
	"testing"
)

// TestGroupsOfNobody: an enforcer whose groups nobody holds begins with its own.
func TestGroupsOfNobody(t *testing.T) {
	dir := t.TempDir()
	for _, what := range []string{"no socket", "a socket of one that ended"} {
		if what != "no socket" {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, GroupsSocket), Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}
		if held, err := heldGroups(dir); err != nil || held != nil {
			t.Errorf("%s: %v, %v", what, held, err)
		}
	}
}
