package enforce

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// TestGroupsOf tries Follow on answers of another enforcer: what cannot be used is an error that
// says why, is closed, and leaves what was held.
func TestGroupsOf(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		fds          int
		want         string
	}{
		{"two", "{}\n", 2, ""},
		{"an enforcer that knows no such order", `{"error":"cannot obey \"lend\""}` + "\n", 0, `cannot obey "lend"`},
		{"an error beside descriptors", `{"error":"no"}` + "\n", 2, "no"},
		{"one", "{}\n", 1, "1 descriptors came, want 2"},
		{"three", "{}\n", 3, "3 descriptors came, want 2"},
		{"no JSON", "x", 2, "invalid character"},
		{"the end", "", 0, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, Socket), Net: "unix"})
			must(t, err)
			defer l.Close()
			go lendOnce(t, l, tt.answer, tt.fds)
			before := openDescriptors(t)
			g := NewGroups(dir)
			err = g.Follow(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			held, err := heldGroups(dir)
			if err != nil || (len(held) == 2) != (tt.want == "") {
				t.Errorf("the next enforcer got %v, %v", held, err)
			}
			must(t, errors.Join(sys.CloseAll(held), g.Close()))
			if _, err := os.Lstat(filepath.Join(dir, groupsSocket)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
			if after := openDescriptors(t); after > before {
				t.Errorf("%d descriptors, then %d", before, after)
			}
		})
	}
}

// lendOnce answers one order, with so many descriptors, and ends the connection.
func lendOnce(t *testing.T, l *net.UnixListener, answer string, fds int) {
	conn, err := l.AcceptUnix()
	if err != nil {
		return
	}
	defer conn.Close()
	o, err := readOrder(conn)
	if err != nil || o.Verb != Lend {
		t.Errorf("the order is %+v, %v", o, err)
	}
	var oob []byte
	if fds > 0 {
		oob = unix.UnixRights([]int{0, 0, 0}[:fds]...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte(answer), oob, nil); err != nil && answer != "" {
		t.Error(err)
	}
}

// openDescriptors counts those of this process, without the sockets of connections that end.
func openDescriptors(t *testing.T) (n int) {
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, e := range list {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestFollowEnds: Follow returns when its context ends, however soon, and not before the worker's
// end otherwise.
func TestFollowEnds(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, Socket), Net: "unix"})
	must(t, err)
	defer l.Close()
	var lent []*net.UnixConn
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			lent = append(lent, conn) // stays open
			_ = sendGroups(conn, 0, 0)
		}
	}()
	g := NewGroups(dir)
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		if err := g.Follow(ctx); err == nil {
			t.Fatal("Follow says that the worker ended")
		}
	}
	must(t, g.Close())
}

// TestGroupsOfNobody: without an enforcer Follow says so at once, and an enforcer whose groups
// nobody holds begins with its own.
func TestGroupsOfNobody(t *testing.T) {
	dir := t.TempDir()
	if err := NewGroups(dir).Follow(t.Context()); !errors.Is(err, ErrNoEnforcer) {
		t.Errorf("without an enforcer: %v", err)
	}
	for _, what := range []string{"no socket", "a socket of one that ended"} {
		if what != "no socket" {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, groupsSocket), Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}
		if held, err := heldGroups(dir); err != nil || held != nil {
			t.Errorf("%s: %v, %v", what, held, err)
		}
	}
}
