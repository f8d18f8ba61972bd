package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// session is a process with a network of its own, as a session's.
func session(t testing.TB) *sys.ProcessHandle {
	t.Helper()
	must.Root(t, "to join network namespaces")
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}},
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := must.Get(sys.OpenProcess(sys.Process{PID: cmd.Process.Pid}))(t)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// carrier stands in for chatd-egress: it takes what it is told, and keeps the files.
type carrier struct {
	t        *testing.T
	listener *net.UnixListener
	has      []chat.ID                   // what it answers to Hello
	greeted  func()                      // called at Hello; may be nil
	closing  func(*uplink.Conn, chat.ID) // called at Close; may be nil
	opening  func(chat.ID)               // called at Open; may be nil

	mu      sync.Mutex
	refuses uplink.Verb      // may be none
	open    *chat.EgressOpen // what it answers to Connections
	conn    *uplink.Conn
	calls   []string // "VERB CHAT FILES ALLOW"
	files   []*os.File
}

func newCarrier(t *testing.T, dir string, has ...chat.ID) *carrier {
	t.Helper()
	return newCarrierWith(t, dir, nil, has...)
}

func newCarrierWith(t *testing.T, dir string, opening func(chat.ID), has ...chat.ID) *carrier {
	t.Helper()
	l := must.Get(net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "sock"),
		Net: "unixpacket"}))(t)
	c := &carrier{t: t, listener: l, has: has, opening: opening}
	var served sync.WaitGroup
	served.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.end()
		served.Wait()
		_ = uplink.CloseFiles(c.files)
	})
	return c
}

func (c *carrier) serve() {
	for {
		u, err := c.listener.AcceptUnix()
		if err != nil {
			return
		}
		f, err := u.File()
		if err = errors.Join(err, u.Close()); err != nil {
			c.t.Error(err)
			return
		}
		conn, err := uplink.New(f)
		if err != nil {
			c.t.Error(err)
			return
		}
		c.mu.Lock()
		c.conn = conn
		c.mu.Unlock()
		expect.NoError(c.t, conn.Serve(context.Background(), c.take))
	}
}

func (c *carrier) take(_ context.Context, call uplink.Call, files []*os.File) ([]*os.File, uplink.Answer) {
	if call.Verb == uplink.Hello && c.greeted != nil {
		c.greeted()
	}
	if call.Verb == uplink.Open && c.opening != nil {
		c.opening(call.Chat)
	}
	c.mu.Lock()
	conn, closing := c.conn, c.closing
	c.mu.Unlock()
	if call.Verb == uplink.Close && closing != nil {
		closing(conn, call.Chat)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	words := []string{string(call.Verb), string(call.Chat)}
	if len(files) > 0 {
		words = append(words, strings.Repeat("+", len(files)))
	}
	for _, a := range call.Allow {
		words = append(words, a.String())
	}
	c.calls = append(c.calls, strings.TrimSpace(strings.Join(words, " ")))
	c.files = append(c.files, files...)
	if call.Verb == c.refuses {
		return nil, uplink.Answer{Error: "it does not know that"}
	}
	return nil, uplink.Answer{Chats: c.has, Open: c.open}
}

// end ends the connection, as when chatd-egress ends.
func (c *carrier) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// heard returns what it was told since the last call, once that is as many calls as want has.
func (c *carrier) heard(want ...string) {
	c.t.Helper()
	until(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.calls) >= len(want)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	expect.Equal(c.t, strings.Join(c.calls, "; "), strings.Join(want, "; "), "it was told")
	c.calls = nil
}

// until waits for something that comes within a minute on any machine.
func until(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(2 * time.Millisecond) {
		must.True(t, !time.Now().After(end), "it does not come")
	}
}

// gatewayOf is a gateway that tells nobody where the options have nobody to tell.
func gatewayOf(opt Options) *Gateway {
	opt.Log = slog.New(slog.DiscardHandler)
	opt.Bound = func(int) error { return nil }
	if opt.Report == nil {
		opt.Report = func(error) {}
	}
	if opt.Events == nil {
		opt.Events = func(chat.ID, []chat.EgressEvent) {}
	}
	if opt.Secrets.Grants == nil {
		opt.Secrets.Grants = func(chat.ID) []secret.Grant { return nil }
	}
	return New(opt)
}

// answers reports whether chatd-egress answers.
func answers(g *Gateway) bool { _, conn := g.look(""); return conn != nil }

// followed is a gateway that follows until the test ends.
func followed(t *testing.T, dir string) *Gateway {
	t.Helper()
	must.Root(t, "to join network namespaces")
	g := gatewayOf(Options{Dir: dir, UID: 60999, GID: 60998, DNSUID: 60997, Program: filepath.Join(dir, "none"),
		Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53"),
			netip.MustParseAddrPort("[::1]:53")}})
	return follow(t, g)
}

func follow(t *testing.T, g *Gateway) *Gateway {
	ctx, cancel := context.WithCancel(context.Background())
	var followed sync.WaitGroup
	followed.Go(func() { g.Follow(ctx) })
	t.Cleanup(func() {
		cancel()
		followed.Wait()
		expect.NoError(t, g.Shut())
	})
	return g
}

// ask is a call of chatd-egress for a socket, and the status of that.
func (c *carrier) ask(call uplink.Call) (st unix.Stat_t, err error) {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	_, files, err := conn.Call(context.Background(), call)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, uplink.CloseFiles(files)) }()
	if len(files) != 1 {
		return st, errors.New("want one socket")
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return st, err
	}
	err = raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) })
	return st, err
}
