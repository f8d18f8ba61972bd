package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/provision/listen"
	"github.com/chatd/chatd/test/must"
)

// systemd is the other side of sd_notify(3).
type systemd struct{ *net.UnixConn }

func fakeSystemd(t *testing.T) systemd {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "chatd-notify-"))(t)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "n"))
	return systemd{c}
}

// hear waits until one message holds the word, and returns it and all before it.
func (s systemd) hear(t *testing.T, word string) string {
	t.Helper()
	var all strings.Builder
	b := make([]byte, 4096)
	must.Do(t, s.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		n, err := s.Read(b)
		if err != nil {
			t.Fatalf("systemd waits for %s, heard %q: %v", word, all.String(), err)
		}
		fmt.Fprintf(&all, "%s\n", b[:n])
		if strings.Contains(string(b[:n]), word) {
			return all.String()
		}
	}
}

// pending is everything that was said and not heard yet: what is sent is in the socket at once.
func (s systemd) pending(t *testing.T) string {
	t.Helper()
	rc := must.Get(s.SyscallConn())(t)
	var all strings.Builder
	b := make([]byte, 4096)
	if err := rc.Control(func(fd uintptr) {
		for {
			n, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			fmt.Fprintf(&all, "%s\n", b[:max(0, n)])
		}
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// lines is a log whose lines can be waited for.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), word)
}

// wait waits until the word stands there n times more than now.
func (l *lines) wait(t *testing.T, word string, n int) {
	t.Helper()
	want := l.count(word) + n
	for range 6000 {
		if l.count(word) >= want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the log does not say %q %d times", word, want)
}

// hanging are chats whose List and Run can be made to hang.
type hanging struct {
	*apitest.Memory
	hang sync.RWMutex // held: List hangs
}

func (h *hanging) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	h.hang.RLock()
	defer h.hang.RUnlock()
	return h.Memory.List(ctx, f)
}

// daemonOf serves h as chatd serve does; end tells it to and returns how it ended.
func daemonOf(t *testing.T, h *hanging, alive func(context.Context) (int, int, error), log *lines) (socket string, end func() error) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "chatd-serve-"))(t)
	socket = filepath.Join(dir, "s")
	l := must.Get(listen.Unix(socket))(t)
	chats := must.Get(runs.Open(t.Context(), h, runs.Options{}))(t)
	t.Cleanup(chats.Close)
	srv := api.NewServer(api.ServerOptions{Chats: chats, Operators: []uint32{uint32(os.Getgid())}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		d := daemonOn{log: slog.New(slog.NewTextHandler(log, nil)), answers: selfCheck(socket, alive),
			front: func(ctx context.Context) error {
				defer context.AfterFunc(ctx, func() { _ = srv.Shutdown(t.Context()) })()
				return srv.Serve(l)
			},
			makeReady: func(context.Context) error { return nil }, endRuns: func() int { return 0 }}
		ended <- d.serve(ctx)
	}()
	end = sync.OnceValue(func() error { cancel(); return errors.Join(<-ended, os.RemoveAll(dir)) })
	t.Cleanup(func() { _ = end() })
	return socket, end
}

func three(context.Context) (int, int, error) { return 12, 3, nil }

const unwell = "chatd does not answer itself"

// A daemon says that it is up, that it is well for as long as it answers its own
// socket, and that it ends.
func TestWatchdog(t *testing.T) {
	systemd := fakeSystemd(t)
	t.Setenv("WATCHDOG_USEC", "400000")
	h, log := &hanging{Memory: apitest.New()}, &lines{}
	_, end := daemonOf(t, h, three, log)
	systemd.hear(t, "READY=1")
	if said := systemd.hear(t, "WATCHDOG=1"); !strings.Contains(said, "STATUS=12 chats, 3 awake\n") {
		t.Errorf("systemd heard %q", said)
	}
	systemd.hear(t, "WATCHDOG=1")

	h.hang.Lock()
	log.wait(t, unwell, 1)
	systemd.pending(t) // what was said before it hung
	log.wait(t, unwell, 3)
	if said := systemd.pending(t); strings.Contains(said, "WATCHDOG=1") {
		t.Errorf("while it hangs it says %q", said)
	}
	h.hang.Unlock()
	systemd.hear(t, "WATCHDOG=1")

	if err := end(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	systemd.hear(t, "STOPPING=1")
}

// A lock that is never released fails the watchdog, as a server that does not answer does.
func TestWatchdogAsksTheManager(t *testing.T) {
	systemd := fakeSystemd(t)
	t.Setenv("WATCHDOG_USEC", "400000")
	log := &lines{}
	stuck := func(ctx context.Context) (int, int, error) { <-ctx.Done(); return 0, 0, ctx.Err() }
	daemonOf(t, &hanging{Memory: apitest.New()}, stuck, log)
	log.wait(t, unwell, 3)
	if said := systemd.pending(t); !strings.Contains(said, "READY=1") || strings.Contains(said, "WATCHDOG=1") {
		t.Errorf("with stuck locks it says %q", said)
	}
}

// Without a watchdog the status is told, and nothing of one.
func TestNoWatchdog(t *testing.T) {
	systemd := fakeSystemd(t)
	daemonOf(t, &hanging{Memory: apitest.New()}, three, &lines{})
	if said := systemd.hear(t, "STATUS="); strings.Contains(said, "WATCHDOG=1") {
		t.Errorf("systemd heard %q", said)
	}
}

// A long start asks for more time again and again, and says what it does; one that
// does not get on does not.
func TestExtendStart(t *testing.T) {
	systemd := fakeSystemd(t)
	said := &lines{}
	log := slog.New(slog.NewTextHandler(said, nil))
	var start starting
	up := start.extend(log, 5*time.Millisecond, time.Hour)
	for range 3 {
		systemd.hear(t, "EXTEND_TIMEOUT_USEC=15000\n")
	}
	start.did("looked after 3 of 4 chats")
	systemd.hear(t, "STATUS=looked after 3 of 4 chats")
	up()
	systemd.pending(t)
	if said := systemd.pending(t); said != "" {
		t.Errorf("once it is up it says %q", said)
	}
	up = start.extend(log, time.Millisecond, 20*time.Millisecond)
	defer up()
	for said.count("the start does not get on") == 0 { // who is not heard waits
		systemd.pending(t)
		time.Sleep(time.Millisecond)
	}
	systemd.pending(t)
	time.Sleep(30 * time.Millisecond)
	if said := systemd.pending(t); said != "" {
		t.Errorf("a start that hangs asks for more time for ever: %q", said)
	}
}
