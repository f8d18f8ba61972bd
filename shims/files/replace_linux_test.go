package files

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestLinkSwappedTwice: the target changes places with a link before the file gets its name, and
// once more before the link has its name back. From then on a sweep, of a write beside this one,
// may take away what has the temporary name: that must never be the link.
func TestLinkSwappedTwice(t *testing.T) {
	w := newWorld(t)
	file, other := w.home+"/file", w.home+"/other"
	put1(t, file, "old")
	link(t, w.out+"/secret", other)
	swapped := func() {
		expect.NoError(t, unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE))
	}
	exchanges := 0
	defer func() { failpoint = func(string) {} }()
	failpoint = func(at string) {
		switch at {
		case "temp.synced":
			swapped()
		case "exchanged":
			if exchanges++; exchanges == 1 {
				swapped()
				return
			}
			left, _ := filepath.Glob(w.home + "/.tmp-*") // the end of a sweep that began before
			for _, name := range left {
				_ = os.Remove(name)
			}
		}
	}
	expect.Is(t, expect.Err(w.write("file", "new")), chat.ErrBusy, "writing gave")
	expect.Equal(t, must.Get(os.Readlink(file))(t), w.out+"/secret", "the link")
	if got := cat(t, other); got != "new" || len(ls(t, w.home)) != 2 {
		t.Errorf("beside the link there are %v, with %q", ls(t, w.home), got)
	}
}
