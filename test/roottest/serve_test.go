package roottest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// activation is a host with a socket that "systemd" holds.
type activation struct {
	opt    provision.Options
	config string
	socket string
	file   *os.File
}

func activate(t *testing.T) activation {
	t.Helper()
	opt := options(t)
	a := activation{opt: opt, config: configFile(t, opt), socket: filepath.Join(opt.Run, "chatd.sock")}
	must.Do(t, os.MkdirAll(opt.Run, 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.socket})
	must.Do(t, err)
	l.SetUnlinkOnClose(false)
	a.file, err = l.File()
	must.Do(t, errors.Join(err, os.Chmod(a.socket, 0o600), l.Close()))
	t.Cleanup(func() { a.file.Close() })
	return a
}

// serve starts chatd as systemd does, with the files as descriptors 3 and up.
// LISTEN_PID names the process that exec makes chatd of.
func (a activation) serve(t *testing.T, env string, files ...*os.File) *daemon {
	t.Helper()
	line := fmt.Sprintf(`LISTEN_PID=$$ LISTEN_FDS=%d %s exec "$@"`, len(files), env)
	log, err := os.OpenFile(filepath.Join(filepath.Dir(a.config), "chatd.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	must.Do(t, err)
	defer log.Close()
	d := &daemon{cmd: exec.Command("sh", "-c", line, "sh", programs.chatd, "serve", "--config", a.config), log: log.Name()}
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = log, log, files
	must.Do(t, d.cmd.Start())
	t.Cleanup(d.kill)
	d.Client = client.NewClient(client.ClientOptions{Socket: a.socket})
	return d
}

// ended waits for the daemon's end and returns its exit code.
func (d *daemon) ended(t *testing.T) int {
	t.Helper()
	err := d.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return d.cmd.ProcessState.ExitCode()
}

// TestSocketActivation: chatd answers on the socket it is handed, lets its groups
// in, leaves the socket for the next chatd, and says goodbye to systemd.
func TestSocketActivation(t *testing.T) {
	a := activate(t)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: a.socket + ".notify", Net: "unixgram"})
	must.Do(t, err)
	defer notify.Close()
	for range 2 {
		d := a.serve(t, "WATCHDOG_USEC=2000000 NOTIFY_SOCKET="+a.socket+".notify", a.file)
		d.waitUp(t)
		for _, word := range []string{"EXTEND_TIMEOUT_USEC=", "READY=1", "WATCHDOG=1", "STATUS=0 chats, 0 awake"} {
			heard(t, notify, word)
		}
		if fi, err := os.Stat(a.socket); err != nil || fi.Mode().Perm() != 0o660 {
			t.Errorf("the socket has mode %v, %v", fi.Mode(), err)
		}
		must.Do(t, d.cmd.Process.Signal(syscall.SIGTERM))
		expect.Equal(t, d.ended(t), 0, "after SIGTERM it ends with")
		heard(t, notify, "STOPPING=1")
		expect.Is(t, expect.Err(os.Lstat(a.socket)), nil, "the socket is gone")
	}
	d := a.serve(t, "", a.file, a.file)
	expect.Equal(t, d.ended(t), 2, "with two sockets it ends with")
	said := text(d.log)
	expect.True(t, strings.Contains(said, "got 2, want only that of chatd.socket"), "with two sockets it says %s", said)
}

// heard reads what was told to systemd until one message has the word.
func heard(t *testing.T, c *net.UnixConn, word string) {
	t.Helper()
	b := make([]byte, 4096)
	must.Do(t, c.SetReadDeadline(time.Now().Add(longEnough)))
	for {
		n, err := c.Read(b)
		must.True(t, err == nil, "systemd waits for %s: %v", word, err)
		if strings.Contains(string(b[:n]), word) {
			return
		}
	}
}

// TestUpgradeUnderARun: SIGTERM while a long run is under way ends chatd with 0,
// the run with all its processes, and not the session.
func TestUpgradeUnderARun(t *testing.T) {
	a := activate(t)
	d := a.serve(t, "", a.file)
	d.waitUp(t)
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "upgrade"}))(t)
	ended := going(func() error {
		r, err := d.Client.Run(t.Context(), c.ID, chat.RunSpec{Command: "touch begun; sleep 1234567"})
		expect.True(t, err == nil && r.EndedBy == chat.EndedByStop && r.Signal != "",
			"the run's caller is told %+v, %v", r, err)
		return err
	})
	waitFile(t, filepath.Join(c.Home, "begun"))
	must.Do(t, d.cmd.Process.Signal(syscall.SIGTERM))
	code := d.ended(t)
	expect.True(t, code == 0, "after SIGTERM under a run it ends with %d: %s", code, text(d.log))
	<-ended
	if out, err := exec.Command("pgrep", "-u", fmt.Sprint(c.UID), "-f", "sleep 1234567").Output(); err == nil {
		t.Errorf("processes of the run live on: %s", out)
	}
	d = a.serve(t, "", a.file)
	d.waitUp(t)
	got, err := d.Get(t.Context(), c.ID)
	expect.True(t, err == nil && got.Awake, "after the upgrade the chat is %+v, %v", got, err)
	must.Do(t, d.Reap(t.Context(), c.ID))
}

// TestEndBeforeUp: SIGTERM at any moment of a start is not a failure, and the next
// start finds nothing in its way.
func TestEndBeforeUp(t *testing.T) {
	a := activate(t)
	for after := time.Duration(0); after < 2*time.Second; after = 2*after + 20*time.Millisecond {
		lock := filepath.Join(a.opt.State, "lock")
		must.Do(t, ignoreGone(os.Remove(lock))) // the one before it ended
		d := a.serve(t, "", a.file)
		waitFile(t, lock)
		time.Sleep(after)
		must.Do(t, d.cmd.Process.Signal(syscall.SIGTERM))
		code := d.ended(t)
		expect.True(t, code == 0, "after SIGTERM %s into its start it ends with %d: %s", after, code, text(d.log))
	}
	a.serve(t, "", a.file).waitUp(t)
}

func waitFile(t *testing.T, path string) {
	t.Helper()
	until(t, path+" comes", exists(path))
}

// TestAuditLogRotates: a daemon turns its full logs over while chats come and go,
// and what it keeps is one chain.
func TestAuditLogRotates(t *testing.T) {
	opt := options(t)
	opt.AuditMax, opt.AuditKeep = 2048, 2
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	var files []string
	for i := 0; len(files) != 3 || filepath.Base(files[0]) == "audit-00000000000000000001.jsonl"; i++ {
		must.True(t, i != 600, "after %d chats there are %q", i, files)
		must.Do(t, m.Reap(operator(t.Context()), asleep(t, m, fmt.Sprint("rotate ", i)).ID))
		time.Sleep(100 * time.Millisecond) // a log is looked at once a second
		files, err = state.AuditFiles(opt.State)
		must.Do(t, err)
	}
	must.Do(t, m.Close())
	if n, whole, err := state.CheckAudit(opt.State); err != nil || !whole || n < 8 {
		t.Errorf("%d lines hold, to the end: %v, %v", n, whole, err)
	}
}
