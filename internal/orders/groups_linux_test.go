package orders

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestGroupsOfNobody: an enforcer whose groups nobody holds begins with its own.
func TestGroupsOfNobody(t *testing.T) {
	dir := t.TempDir()
	for _, what := range []string{"no socket", "a socket of one that ended"} {
		if what != "no socket" {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, GroupsSocket), Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			must.Do(t, err)
		}
		if held, err := LentGroups(dir); err != nil || held != nil {
			t.Errorf("%s: %v, %v", what, held, err)
		}
	}
}

// TestGroupsAcross: two groups cross, or none; anything else is refused, and nothing of it stays
// open.
func TestGroupsAcross(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must.Do(t, err)
		ours, theirs := connOf(t, ends[0]), connOf(t, ends[1])
		r, w, err := os.Pipe()
		must.Do(t, err)
		err = SendGroups(ours, slices.Repeat([]int{int(w.Fd())}, n)...)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := ReceiveGroups(theirs)
		if refused := n == 1 || n == 3; refused != (err != nil) || !refused && len(got) != n {
			t.Errorf("%d descriptors: %v, %v", n, got, err)
		}
		expect.NoError(t, sys.CloseAll(got))
		expect.NoError(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := r.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d descriptors: %v, want that all are closed", n, err)
		}
		_ = r.Close()
	}
}

func connOf(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "end")
	defer f.Close()
	conn := must.Get(net.FileConn(f))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}
