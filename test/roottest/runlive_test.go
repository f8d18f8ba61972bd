package roottest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// cliRun is chatd run in front of a daemon.
type cliRun struct {
	*exec.Cmd
	mu        sync.Mutex
	out, errs bytes.Buffer
}

func (c *cliRun) text() (out, errs string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String(), c.errs.String()
}

type sharedBuffer struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l sharedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func newCLIRun(opt provision.Options, stdin io.Reader, args ...string) *cliRun {
	c := &cliRun{Cmd: exec.Command(programs.chatd, append([]string{"--socket", filepath.Join(opt.Run, "chatd.sock")}, args...)...)}
	c.Stdin, c.Stdout, c.Stderr = stdin, sharedBuffer{&c.mu, &c.out}, sharedBuffer{&c.mu, &c.errs}
	return c
}

// await waits until the command has printed text.
func (c *cliRun) await(t *testing.T, text string) {
	t.Helper()
	if !comes(func() bool { out, _ := c.text(); return strings.Contains(out, text) }) {
		out, errs := c.text()
		t.Fatalf("never printed %q: %q, %q", text, out, errs)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// highWater is the most memory that a process had, in bytes.
func highWater(pid int) int64 {
	return int64(kilobytes(fmt.Sprintf("/proc/%d/status", pid), "VmHWM")) << 10
}

// highWaterOf looks at a process until it ends. Not ru_maxrss: that of a child begins with what
// its parent had (exec_mmap of fs/exec.c), which is this process.
func highWaterOf(pid int) (max int64) {
	for {
		now := highWater(pid)
		if now == 0 { // it has ended
			return max
		}
		max = now
		time.Sleep(5 * time.Millisecond)
	}
}

// TestRunLikeSSH: chatd run has standard input of any size and the memory of none, streams apart,
// the exit code, and the signals.
func TestRunLikeSSH(t *testing.T) {
	opt := attackOptions(t)
	d := startDaemon(t, opt, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "ssh"})
	must.Do(t, err)
	id := string(c.ID)

	before := highWater(d.cmd.Process.Pid)
	const size = 300 << 20
	r := newCLIRun(opt, io.LimitReader(endless{}, size), "run", id, "-c", "wc -c; echo apart >&2; exit 9")
	must.Do(t, r.Start())
	max := make(chan int64)
	go func() { max <- highWaterOf(r.Process.Pid) }()
	err = r.Wait()
	if out, errs := r.text(); exitCode(err) != 9 || strings.TrimSpace(out) != strconv.Itoa(size) || errs != "apart\n" {
		t.Errorf("%v: %q, %q", err, out, errs)
	}
	if now := highWater(d.cmd.Process.Pid); now-before > 48<<20 {
		t.Errorf("the daemon had %d MiB more", (now-before)>>20)
	}
	if max := <-max; max == 0 || max > 96<<20 {
		t.Errorf("chatd run had %d MiB", max>>20)
	}

	r = newCLIRun(opt, endless{}, "run", id, "-c", "sleep 0.2; echo never read; exit 4")
	must.Do(t, r.Start())
	must.Do(t, r.Process.Signal(syscall.Signal(0)))
	waitEnd(t, r, 4)

	r = newCLIRun(opt, endless{}, "run", id, "-c", "head -c 5 >/dev/null; exec <&-; sleep 0.2; exit 6")
	must.Do(t, r.Start())
	waitEnd(t, r, 6)

	for _, s := range []struct {
		sig  syscall.Signal
		want int
	}{{unix.SIGTERM, 143}, {unix.SIGINT, 130}, {unix.SIGHUP, 129}, {unix.SIGQUIT, 131}, {unix.SIGUSR1, 138}, {unix.SIGUSR2, 140}} {
		r = newCLIRun(opt, nil, "run", id, "-c", "echo ready; exec sleep 1000")
		must.Do(t, r.Start())
		r.await(t, "ready")
		must.Do(t, r.Process.Signal(s.sig))
		waitEnd(t, r, s.want)
	}
	r = newCLIRun(opt, nil, "run", id, "--grace", "300ms", "-c", "trap 'echo int' INT; trap '' TERM; echo ready; while :; do sleep 0.05; done")
	must.Do(t, r.Start())
	r.await(t, "ready")
	must.Do(t, r.Process.Signal(unix.SIGINT))
	r.await(t, "int")
	time.Sleep(400 * time.Millisecond)
	must.Do(t, r.Process.Signal(unix.SIGINT))
	waitEnd(t, r, 130)
}

// waitEnd waits for the end of chatd run.
func waitEnd(t *testing.T, r *cliRun, want int) {
	t.Helper()
	// The copy of an endless standard input into the pipe ends with the pipe.
	err := r.Wait()
	if code := r.ProcessState.ExitCode(); code != want {
		out, errs := r.text()
		t.Errorf("exit code %d, want %d: %v, %q, %q", code, want, err, out, errs)
	}
}

// endless is a reader of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestRunTTY: -t is a terminal of the chat's own, with a size that changes; what it prints comes to
// an operator's terminal without what that would obey.
func TestRunTTY(t *testing.T) {
	opt := attackOptions(t)
	d := startDaemon(t, opt, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "tty"})
	must.Do(t, err)
	ctx := t.Context()

	r, err := d.StartRun(ctx, c.ID, chat.RunSpec{TTY: &chat.TTY{Rows: 33, Cols: 101},
		Command: "tty; stty size; trap 'stty size; exit 5' WINCH; read line; echo read $line; echo ready; while :; do sleep 0.05; done"})
	must.Do(t, err)
	must.Do(t, d.WriteStdin(ctx, c.ID, r.ID, io.NopCloser(strings.NewReader("hello\n")), false))
	shows := func(text string) {
		t.Helper()
		var got chat.Run
		comes(func() bool {
			got = must.Get(d.ShowRun(ctx, c.ID, r.ID))(t)
			return strings.Contains(got.Result.Stdout, text) || got.State != chat.RunRunning
		})
		must.True(t, strings.Contains(got.Result.Stdout, text), "want %q, got %+v", text, got.Result)
	}
	for _, want := range []string{"/dev/pts/", "33 101\r\n", "read hello", "ready"} {
		shows(want)
	}
	must.Do(t, d.SignalRun(ctx, c.ID, r.ID, chat.RunSignal{Signal: "WINCH", TTY: &chat.TTY{Rows: 40, Cols: 90}}))
	var got chat.Run
	until(t, "the run ends after its size has changed", func() bool {
		got, err = d.ShowRun(ctx, c.ID, r.ID)
		must.Do(t, err)
		return got.State != chat.RunRunning
	})
	expect.True(t, got.Result.Exit == 5 && strings.Contains(got.Result.Stdout, "40 90"),
		"%+v", got.Result)
	if _, err := exec.LookPath("script"); err != nil {
		missing(t, "script(1)")
	}
	// script(1) gives chatd run a terminal, and has what reached it.
	inside := `printf 'plain \033[31mred\033[0m \033]52;c;aGk=\007 \033]0;title\007 \033[6n end\n'; exit 3`
	script := exec.Command("script", "-qec", fmt.Sprintf("%s --socket %s run -t %s -c '%s'", programs.chatd, filepath.Join(opt.Run, "chatd.sock"), c.ID, strings.ReplaceAll(inside, "'", `'\''`)), "/dev/null")
	out, err := script.Output()
	if exitCode(err) != 3 || !strings.Contains(string(out), "plain \x1b[31mred\x1b[") || !strings.Contains(string(out), "end\r\n") {
		t.Errorf("%v: %q", err, out)
	}
	for _, bad := range []string{"\x1b]", "title", "aGk=", "\x1b[6n"} {
		expect.True(t, !strings.Contains(string(out), bad), "%q reached the terminal: %q", bad, out)
	}
}
