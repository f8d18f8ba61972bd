package enforcer

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestGroupsOf tries follow on answers of another enforcer: what cannot be used is an error that
// says why, is closed, and leaves what was held.
func TestGroupsOf(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		fds          int
		want         string
	}{
		{"two", "{}\n", 2, ""},
		{"an enforcer that cannot", `{"error":"cannot obey lend"}` + "\n", 0, "cannot obey lend"},
		{"an error beside descriptors", `{"error":"no"}` + "\n", 2, "no"},
		{"one", "{}\n", 1, "1 descriptors came, want 2"},
		{"three", "{}\n", 3, "3 descriptors came, want 2"},
		{"no JSON", "x", 2, "invalid character"},
		{"the end", "", 0, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.ListenUnix("unix", at(dir, orders.Socket))
			must.Do(t, err)
			defer l.Close()
			go lendOnce(t, l, tt.answer, tt.fds)
			before := openDescriptors(t)
			g := &groups{dir: dir}
			err = g.follow(t.Context())
			expect.True(t, says(err, tt.want), "got %v, want %q", err, tt.want)
			held, err := takenOver(dir)
			expect.True(t, err == nil && (len(held) == 2) == (tt.want == ""),
				"the next enforcer got %v, %v", held, err)
			must.Do(t, errors.Join(sys.CloseAll(held), g.close()))
			socketGone(t, dir)
			after := openDescriptors(t)
			expect.True(t, after <= before, "%d descriptors, then %d", before, after)
		})
	}
}

// takenOver are the groups that the next enforcer of the directory gets; nil if nobody holds any.
func takenOver(dir string) ([]int, error) {
	conn, err := net.DialUnix("unix", nil, at(dir, orders.GroupsSocket))
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return orders.ReceiveGroups(conn)
}

func socketGone(t *testing.T, dir string) {
	t.Helper()
	_, err := os.Lstat(filepath.Join(dir, orders.GroupsSocket))
	expect.Is(t, err, os.ErrNotExist, "the socket is left")
}

// lendOnce answers one order, with this many descriptors, and ends the connection.
func lendOnce(t *testing.T, l *net.UnixListener, answer string, fds int) {
	conn, err := l.AcceptUnix()
	if err != nil {
		return
	}
	defer conn.Close()
	var o orders.Order
	if err := json.NewDecoder(conn).Decode(&o); err != nil || o.Verb != orders.Lend {
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
	list := must.Get(os.ReadDir("/proc/self/fd"))(t)
	for _, e := range list {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// TestFollowEnds: follow returns when its context ends, however soon, and not before the worker's
// end otherwise.
func TestFollowEnds(t *testing.T) {
	dir := t.TempDir()
	lend(t, dir)
	g := &groups{dir: dir}
	for i := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		err := g.follow(ctx)
		must.True(t, err != nil, "follow says that the worker ended")
	}
	must.Do(t, g.close())
}

// lend is an enforcer that lends two groups and lives until end is called.
func lend(t *testing.T, dir string) (f *fake, end func()) {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	f = answers(t, dir, func(conn *net.UnixConn, o orders.Order) {
		if o.Verb != orders.Lend {
			with("{}\n")(conn, o)
			return
		}
		_ = orders.SendGroups(conn, 0, 0)
		<-over.Done()
	})
	return f, func() { _ = f.l.Close(); cancel() }
}

// TestFollow: the groups are held while an enforcer lives and until the next one comes. They are
// dropped if no session needs them then, and when Follow ends.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	c := of(dir)
	var needed atomic.Bool
	var looked atomic.Int32 // how often Follow found no enforcer
	needed.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() {
		c.Follow(ctx, func() bool { looked.Add(1); return needed.Load() })
		close(followed)
	}()
	held := func(want int) func() bool {
		return func() bool {
			fds, err := takenOver(dir)
			return errors.Join(err, sys.CloseAll(fds)) == nil && len(fds) == want
		}
	}
	_, end := lend(t, dir)
	until(t, "the groups are held", held(2))
	end()
	// None can be started: /none is not there.
	until(t, "Follow has tried to start one", func() bool { return looked.Load() > 1 })
	expect.True(t, held(2)(), "the groups are dropped while a session needs them")
	f, end := lend(t, dir)
	until(t, "the next one's groups are held", func() bool { return f.asked(orders.Lend) == 1 })
	needed.Store(false)
	end()
	until(t, "the groups are dropped", held(0))
	f, _ = lend(t, dir)
	must.Do(t, c.Start(t.Context()))
	until(t, "those of one that was started are held", func() bool {
		return f.asked(orders.Lend) == 1 && held(2)()
	})
	stop()
	<-followed
	socketGone(t, dir)
}

// TestFollowStarts: while a session needs an enforcer, Follow starts one.
func TestFollowStarts(t *testing.T) {
	c := starter(t, t.TempDir(), "")
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() { c.Follow(ctx, func() bool { return true }); close(followed) }()
	until(t, "an enforcer answers", func() bool { return c.answers(t.Context()) })
	stop()
	<-followed
}
