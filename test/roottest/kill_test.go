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

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// daemon is a real chatd in a process of its own, with failpoints.
type daemon struct {
	*api.Client
	cmd *exec.Cmd
	log string
	// ready is closed when systemd would hear that it is: what an earlier one left is finished.
	ready chan struct{}
}

// startDaemon starts chatd serve; failpoint names where it shall be killed, or
// is empty.
func startDaemon(t *testing.T, opt provision.Options, failpoint string) *daemon {
	t.Helper()
	return startDaemonOf(t, opt, configFile(t, opt), failpoint)
}

// startDaemonOf starts chatd serve with a config file for these options.
func startDaemonOf(t *testing.T, opt provision.Options, config, failpoint string) *daemon {
	t.Helper()
	dir := filepath.Dir(opt.State)
	log, err := os.OpenFile(filepath.Join(dir, "chatd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer log.Close()
	d := &daemon{cmd: exec.Command(programs.chatd, "serve", "--config", config), log: log.Name(), ready: make(chan struct{})}
	d.cmd.Env = append(os.Environ(), "CHATD_FAILPOINT="+failpoint, "NOTIFY_SOCKET="+d.listen(t, dir))
	d.cmd.Stdout, d.cmd.Stderr = log, log
	must(t, d.cmd.Start())
	t.Cleanup(d.kill)
	d.Client = api.NewClient(api.ClientOptions{Socket: filepath.Join(opt.Run, "chatd.sock")})
	d.waitUp(t)
	d.waitReady(t)
	return d
}

// listen is systemd's side of sd_notify(3).
func (d *daemon) listen(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, fmt.Sprintf("notify-%d", daemons.Add(1)))
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		said := make([]byte, 4096)
		for ready := false; ; { // until it is closed: nobody may wait for room to say more
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
		b, _ := os.ReadFile(d.log)
		t.Fatalf("chatd does not say READY=1; its log:\n%s", b)
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
	if err != nil {
		b, _ := os.ReadFile(d.log)
		t.Fatalf("chatd does not answer: %v; its log:\n%s", err, b)
	}
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

// leaveOrphansToInit is for a test that kills a daemon, whose sessions and runs are then for
// init to collect, and not for this process, which is a subreaper once it has been a daemon
// itself. Who is not collected holds the end of its pid namespace up.
func leaveOrphansToInit(t *testing.T) {
	t.Helper()
	must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
	t.Cleanup(func() { must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) })
}

// killed waits until the failpoint has ended the daemon.
func (d *daemon) killed(t *testing.T) {
	t.Helper()
	err := d.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the daemon ended by %v, want SIGKILL at the failpoint", err)
	}
}

// failpoints are where a verb can be interrupted. After one step is before the
// next: where time is short one of both is enough.
func failpoints(verb string, steps ...string) []string {
	var points []string
	for _, s := range steps {
		if points = append(points, verb+"."+s+".after"); !testing.Short() {
			points = append(points, verb+"."+s+".before")
		}
	}
	return points
}

// TestKillAtEveryStep kills the real daemon at each step of create, wake, sleep
// and reap, starts a fresh one, and looks from the host's side: every chat is
// whole or gone, and no uid comes back.
func TestKillAtEveryStep(t *testing.T) {
	needsRoot(t)
	opt := options(t)
	clean := startDaemon(t, opt, "")
	clean.kill()
	asleepSteps := []string{"egress", "account", "leftovers", "log", "home", "tmp", "runs"}
	awakeSteps := []string{"limits", "session"}
	seen := map[uint32]chat.ID{}
	for _, c := range []struct {
		points []string
		do     func(*daemon, context.Context, chat.ID) error
		// wholeAfter: the chat must be there afterwards; goneAfter: it must not.
		wholeAfter, goneAfter bool
	}{
		{points: append(failpoints("create", asleepSteps...), "create.record.after"), do: nil, wholeAfter: true},
		{points: failpoints("wake", awakeSteps...), do: func(d *daemon, ctx context.Context, id chat.ID) error { return second(d.Wake(ctx, id)) }, wholeAfter: true},
		{points: failpoints("sleep", awakeSteps...), do: func(d *daemon, ctx context.Context, id chat.ID) error {
			return errors.Join(second(d.Wake(ctx, id)), second(d.Sleep(ctx, id)))
		}, wholeAfter: true},
		{points: append(failpoints("reap", append(asleepSteps, awakeSteps...)...), "reap.record.after", "reap.forget.before"), do: func(d *daemon, ctx context.Context, id chat.ID) error {
			return errors.Join(second(d.Wake(ctx, id)), d.Reap(ctx, id))
		}, goneAfter: true},
	} {
		for _, point := range c.points {
			t.Run(point, func(t *testing.T) { killAt(t, opt, point, c.do, c.wholeAfter, c.goneAfter, seen) })
		}
	}
}

func killAt(t *testing.T, opt provision.Options, point string, do func(*daemon, context.Context, chat.ID) error, wholeAfter, goneAfter bool, seen map[uint32]chat.ID) {
	ctx := t.Context()
	no := false
	spec := chat.Spec{ExternalID: "killed at " + point, Awake: &no}
	d := startDaemon(t, opt, point)
	c, _, err := d.Create(ctx, spec)
	if do != nil {
		must(t, err)
		err = do(d, ctx, c.ID)
	}
	if err == nil {
		t.Fatalf("the failpoint %s was never reached", point)
	}
	d.killed(t)

	d = startDaemon(t, opt, "")
	page, err := d.List(ctx, chat.Filter{ExternalID: spec.ExternalID})
	must(t, err)
	switch {
	case goneAfter && len(page.Chats) > 0:
		t.Errorf("the chat is still there: %+v", page.Chats[0])
	case wholeAfter && len(page.Chats) != 1:
		t.Fatalf("%d chats, want 1", len(page.Chats))
	case wholeAfter:
		c = page.Chats[0]
		if c.Phase != chat.Ready {
			t.Errorf("phase %s, want ready", c.Phase)
		}
		whole(t, opt, c)
		r, err := d.Run(ctx, c.ID, chat.RunSpec{Command: "echo $HOME"})
		if err != nil || r.Stdout != c.Home+"\n" {
			t.Errorf("a run afterwards: %+v, %v", r, err)
		}
		must(t, d.Reap(ctx, c.ID))
	}
	gone(t, opt, c)
	if other, ok := seen[c.UID]; ok {
		t.Errorf("uid %d was chat %s before", c.UID, other)
	}
	seen[c.UID] = c.ID
	d.kill()
}
