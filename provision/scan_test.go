package provision

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/leftovers"
)

// TestLeftFinding: names that chats and operators chose act neither on a terminal nor in the shell
// that the finding is pasted into.
func TestLeftFinding(t *testing.T) {
	got := leftFinding(leftovers.Left{
		UID: 7, Files: 2, First: [][]byte{[]byte("/a/\x1b[2J\n\xff"), []byte("/b")},
		Mounts: [][]byte{[]byte("/"), []byte("/it's $(x)")},
	})
	want := `2 files belong to uid 7, as "/a/\x1b[2J\n\xff" "/b": look at them, and remove them or ` +
		`give them to somebody: find / '/it'\''s $(x)' -xdev -uid 7`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = leftFinding(leftovers.Left{UID: 7, Chat: "0123456789abcdef"})
	if !strings.Contains(got, "uid 7 (chat 0123456789abcdef, reaped)") {
		t.Error(got)
	}
}
