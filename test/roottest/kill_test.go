package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// daemon is a real chatd in a process of its own, with failpoints.
type daemon struct {
	*client.Client
	cmd *exec.Cmd
	log string
	// ready is closed when systemd would hear that it is: what an earlier one left is finished.
	ready chan struct{}
}

// startDaemon starts chatd serve, with more lines of config; failpoint names where it shall be
// killed, or is empty. What it has of chats when the test ends is reaped.
func startDaemon(t *testing.T, opt provision.Options, failpoint string, more ...string) *daemon {
	t.Helper()
	return startDaemonOf(t, opt, configFile(t, opt, more...), failpoint)
}

// startDaemonOf starts chatd serve with a config file for these options.
func startDaemonOf(t *testing.T, opt provision.Options, config, failpoint string) *daemon {
	t.Helper()
	leaveOrphansToInit(t)
	dir := filepath.Dir(opt.State)
	log, err := os.OpenFile(filepath.Join(dir, "chatd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must.Do(t, err)
	defer log.Close()
	d := &daemon{cmd: exec.Command(programs.chatd, "serve", "--config", config), log: log.Name(), ready: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), "CHATD_FAILPOINT="+failpoint, "NOTIFY_SOCKET="+d.listen(t, dir))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	must.Do(t, d.cmd.Start())
	t.Cleanup(func() {
		d.reapAll(t)
		if d.kill(); t.Failed() {
			said := text(d.log) // to explain the failure, if it can
			t.Logf("the last of %s:\n%s", d.log, said[max(0, len(said)-10_000):])
		}
	})
	d.Client = client.NewClient(client.ClientOptions{Socket: filepath.Join(opt.Run, "chatd.sock")})
	d.waitUp(t)
	d.waitReady(t)
	return d
}

// hup has a daemon read its config again, and waits until its log or a finding says the words.
func (d *daemon) hup(t *testing.T, want string) (h chat.Host) {
	t.Helper()
	must.Do(t, d.cmd.Process.Signal(syscall.SIGHUP))
	until(t, fmt.Sprintf("after SIGHUP somebody says %q", want), func() bool {
		h = must.Get(d.Host(t.Context()))(t)
		return strings.Contains(text(d.log)+strings.Join(h.Findings, "\n"), want)
	})
	return h
}

// reapAll reaps the chats of a daemon that is still there.
func (d *daemon) reapAll(t *testing.T) {
	if d.isOver() {
		return
	}
	page, err := d.List(context.Background(), chat.Filter{Limit: 1000})
	expect.True(t, err == nil || d.isOver(), "%v", err)
	for _, c := range page.Chats {
		expect.NoError(t, d.Reap(context.Background(), c.ID))
	}
}

// listen is systemd's side of sd_notify(3).
func (d *daemon) listen(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, fmt.Sprintf("notify-%d", daemons.Add(1)))
	l := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		said := make([]byte, 4096)
		for ready := false; ; { // until it is closed, so that no writer waits for room
			n, err := l.Read(said)
			if err != nil {
				return
			}
			if !ready && slices.Contains(strings.Split(string(said[:n]), "\n"), "READY=1") {
				ready = true
				close(d.ready)
			}
		}
	}()
	return name
}

var daemons atomic.Int64

// waitReady waits until what an earlier daemon left is finished: that comes after the walls are
// tried, and so after waitUp.
func (d *daemon) waitReady(t *testing.T) {
	t.Helper()
	if !comes(func() bool {
		select {
		case <-d.ready:
			return true
		default:
			return d.isOver()
		}
	}) {
		t.Fatalf("chatd does not say READY=1; its log:\n%s", text(d.log))
	}
}

func (d *daemon) waitUp(t *testing.T) {
	t.Helper()
	var err error
	comes(func() bool {
		var st chat.Status
		if st, err = d.Status(t.Context()); err == nil && !st.Ready {
			err = fmt.Errorf("not ready: %+v", st)
		}
		return err == nil || d.isOver()
	})
	must.True(t, err == nil, "chatd does not answer: %v; its log:\n%s", err, text(d.log))
}

// isOver reports a daemon that is not there any more, and leaves it to be collected.
func (d *daemon) isOver() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, d.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

// kill is kill -9, as often as one likes.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// leaveOrphansToInit is for a test that kills a daemon: init must then reap its sessions and runs,
// and not this process, which is a subreaper once it has been a daemon itself. A process that is
// not reaped delays the end of its pid namespace.
func leaveOrphansToInit(t *testing.T) {
	t.Helper()
	must.Do(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
	t.Cleanup(func() { must.Do(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) })
}

// killed waits until the failpoint has ended the daemon.
func (d *daemon) killed(t *testing.T) {
	t.Helper()
	err := d.cmd.Wait()
	var exit *exec.ExitError
	must.True(t, errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL,
		"the daemon ended by %v, want SIGKILL at the failpoint", err)
}

// TestKillAtEveryStep kills the real daemon at each step of create, wake, sleep
// and reap, starts a fresh one, and looks from the host's side: every chat is
// whole or gone, and no uid comes back. The fresh one is the next to be killed.
func TestKillAtEveryStep(t *testing.T) {
	k := killing{opt: options(t), seen: map[uint32]chat.ID{}}
	k.orders = failpoints(filepath.Dir(k.opt.State))
	k.daemon = startDaemon(t, k.opt, string(k.orders))
	points := metByRoot(t, k.daemon, k.orders)
	for _, c := range []struct {
		verb string
		do   func(*daemon, context.Context, chat.ID) error
		// there: the chat must be there and whole afterwards, or gone.
		there bool
	}{
		{verb: "create", there: true},
		{verb: "wake", do: func(d *daemon, ctx context.Context, id chat.ID) error {
			return expect.Err(d.Wake(ctx, id))
		}, there: true},
		{verb: "sleep", do: func(d *daemon, ctx context.Context, id chat.ID) error {
			return errors.Join(expect.Err(d.Wake(ctx, id)), expect.Err(d.Sleep(ctx, id)))
		}, there: true},
		{verb: "reap", do: func(d *daemon, ctx context.Context, id chat.ID) error {
			return errors.Join(expect.Err(d.Wake(ctx, id)), d.Reap(ctx, id))
		}},
	} {
		for _, point := range points[c.verb] {
			t.Run(point, func(sub *testing.T) {
				made := k.at(sub, point, c.do)
				k.daemon = startDaemon(t, k.opt, string(k.orders))
				k.afterwards(sub, point, made, c.there)
			})
		}
	}
}

// killing is a daemon that is killed again and again, at the points that it is ordered.
type killing struct {
	*daemon
	opt    provision.Options
	orders failpoints
	seen   map[uint32]chat.ID
}

// at kills the daemon at the point and returns what it knows of the chat by then.
func (k *killing) at(
	t *testing.T, point string, do func(*daemon, context.Context, chat.ID) error,
) chat.Chat {
	t.Helper()
	if do == nil {
		k.orders.order(t, point, 0)
	}
	c, _, err := k.Create(t.Context(), chat.Spec{ExternalID: point, Awake: new(false)})
	if do != nil {
		must.Do(t, err)
		k.orders.order(t, point, 0)
		err = do(k.daemon, t.Context(), c.ID)
	}
	must.True(t, err != nil, "the failpoint %s was never reached", point)
	k.killed(t)
	return c
}

// afterwards looks at the chat that a daemon was killed over, and reaps it.
func (k *killing) afterwards(t *testing.T, point string, c chat.Chat, there bool) {
	t.Helper()
	page := must.Get(k.List(t.Context(), chat.Filter{ExternalID: point}))(t)
	switch {
	case !there && len(page.Chats) > 0:
		t.Errorf("the chat is still there: %+v", page.Chats[0])
	case there && len(page.Chats) != 1:
		t.Fatalf("%d chats, want 1", len(page.Chats))
	case there:
		c = page.Chats[0]
		expect.True(t, c.Phase == chat.Ready, "phase %s, want ready", c.Phase)
		whole(t, k.opt, c)
		r, err := k.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo $HOME"})
		expect.True(t, err == nil && r.Stdout == c.Home+"\n", "a run afterwards: %+v, %v", r, err)
		must.Do(t, k.Reap(t.Context(), c.ID))
	}
	gone(t, k.opt, c)
	other, ok := k.seen[c.UID]
	expect.True(t, !ok, "uid %d was chat %s before", c.UID, other)
	k.seen[c.UID] = c.ID
}
