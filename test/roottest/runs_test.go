package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// stubborn are ways to outlive a timeout.
var stubborn = map[string]string{
	"setsid":             "setsid sleep 5001",
	"double fork":        "(setsid sh -c 'sleep 5002 & sleep 5003' &); sleep 5004",
	"ignored TERM":       "trap '' TERM HUP INT; while :; do sleep 5005; done",
	"stdout held open":   "sleep 5006 & sleep 5007",
	"nohup":              "nohup sleep 5008 & wait",
	"stopped":            "kill -STOP $$",
	"a child is stopped": "sleep 5009 & kill -STOP $!; wait",
	"breeds":             "trap 'sleep 5010 &' TERM; while :; do sleep 1; done",
	"daemon":             "perl -e 'use POSIX; fork and exit; POSIX::setsid; fork and exit; $SIG{TERM}=\"IGNORE\"; sleep 5011 while 1' ; sleep 5012",
}

// TestRunAfterTheSessionEnded: a run may end its own session. The next one wakes the chat, or is
// told to ask again, and of no path of the host.
func TestRunAfterTheSessionEnded(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "ends itself", "default")
	for range 5 {
		_, _ = m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: "kill -9 $(pgrep tmux); sleep 0.02"})
		for again := true; again; {
			_, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: "true"})
			again = errors.Is(err, chat.ErrBusy)
			if err != nil && (!again || strings.Contains(err.Error(), "/proc")) {
				t.Errorf("the next run: %v", err)
			}
		}
	}
}

// TestTimeouts: when its time is over, everything of a run is gone, however it tries to
// stay, and the answer comes; the chat's terminal stays.
func TestTimeouts(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "timeouts", "default")
	for name, command := range stubborn {
		t.Run(name, func(t *testing.T) {
			spec := chat.RunSpec{Command: command, Timeout: chat.Duration(300 * time.Millisecond), Grace: chat.Duration(500 * time.Millisecond), Env: map[string]string{runTag: "timeouts"}}
			r, err := m.Run(operator(t.Context()), c.ID, spec)
			expect.True(t, err == nil && r.TimedOut, "%+v, %v", r, err)
			nothingTagged(t, c, "timeouts")
		})
	}
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || !got.Awake {
		t.Errorf("the chat's terminal is gone: %+v, %v", got, err)
	}
}

// nothingTagged wants no process of the runs with that tag. The kernel may still be ending what
// was killed; what dies is listed until the session's pid 1 has collected it.
func nothingTagged(t *testing.T, c chat.Chat, tag string) {
	t.Helper()
	if !comes(func() bool { return len(tagged(c.UID, tag))+len(inRuns(c.UID)) == 0 }) {
		t.Errorf("processes of the run are left: %v, in its leaf %v", tagged(c.UID, tag), inRuns(c.UID))
	}
}

// TestTimeoutMax: a wish above the profile's maximum starts nothing, and its error names
// the maximum; without a wish the maximum ends the run.
func TestTimeoutMax(t *testing.T) {
	opt := attackOptions(t)
	p := opt.Profiles["default"]
	p.Name, p.TimeoutMax = "short", chat.Duration(time.Second)
	opt.Profiles["short"] = p
	m := open(t, opt)
	c := create(t, m, "timeout max", "short")
	ctx := operator(t.Context())
	_, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "touch ran", Timeout: chat.Duration(2 * time.Second)})
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "want at most 1s, which is timeout_max of profile short") {
		t.Errorf("%v", err)
	}
	expect.True(t, expect.Err(os.Stat(filepath.Join(c.Home, "ran"))) != nil, "it ran")
	if r, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "sleep 5013"}); err != nil || !r.TimedOut {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestGrace: a run that is ended hears SIGTERM and may finish; with its caller gone too.
func TestGrace(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "grace", "default")
	const tidy = "trap 'echo tidy >tidied; echo tidied; exit 7' TERM; touch ready; echo ready; while :; do sleep 0.1; done"
	for timeout := time.Second; ; timeout *= 2 {
		r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: tidy, Timeout: chat.Duration(timeout), Grace: chat.MaxGrace})
		if err == nil && r.TimedOut && r.Stdout == "" && timeout < longEnough {
			continue // it was not as far as its trap
		}
		expect.True(t, err == nil && r.TimedOut && r.Exit == 7 && strings.Contains(r.Stdout, "tidied"),
			"%+v, %v", r, err)
		break
	}
	ready, tidied := filepath.Join(c.Home, "ready"), filepath.Join(c.Home, "tidied")
	must.Do(t, errors.Join(os.Remove(ready), os.Remove(tidied)))
	ctx, leave := context.WithCancel(operator(t.Context()))
	defer leave()
	go func() { comes(exists(ready)); leave() }()
	expect.Is(t, expect.Err(m.Run(ctx, c.ID, chat.RunSpec{Command: tidy})), context.Canceled,
		"the caller is gone")
	expect.Is(t, expect.Err(os.Stat(tidied)), nil, "the caller is gone")
}

// TestGraceKeepsTheExit: a command that tidies up and ends in its grace has its own exit code,
// however late nsenter(1), which reports it, gets a CPU.
func TestGraceKeepsTheExit(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "late", "default")
	ready, tidied := filepath.Join(c.Home, "ready"), filepath.Join(c.Home, "tidied")
	const tidy = "trap 'touch tidied; exit 7' TERM; touch ready; while :; do sleep 0.1; done"
	for timeout := 4 * time.Second; ; timeout *= 2 {
		run, ended := context.WithCancel(t.Context())
		late := make(chan struct{})
		go func() {
			defer close(late)
			if !comes(func() bool { return exists(ready)() || run.Err() != nil }) || run.Err() != nil {
				return
			}
			nsenter := childNamed(t, "nsenter")
			_ = unix.Kill(nsenter, unix.SIGSTOP)
			comes(exists(tidied))
			time.Sleep(300 * time.Millisecond)
			_ = unix.Kill(nsenter, unix.SIGCONT)
		}()
		r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{
			Command: tidy, Timeout: chat.Duration(timeout), Grace: chat.MaxGrace,
		})
		ended()
		<-late
		if !exists(ready)() && timeout < longEnough {
			continue // it was not as far as its trap
		}
		expect.True(t, err == nil && r.TimedOut && r.Exit == 7 && r.Signal == "", "%+v, %v", r, err)
		return
	}
}

// childNamed is a child of this process by its name.
func childNamed(t *testing.T, name string) int {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	expect.NoError(t, err)
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, child := range strings.Fields(string(text)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if pid, err := strconv.Atoi(child); err == nil && strings.TrimSpace(string(comm)) == name {
				return pid
			}
		}
	}
	t.Errorf("there is no child %s", name)
	return 1 << 30
}

// TestOutputCaps: of a stream that is too long the head and the tail are kept, and how
// long it was is told.
func TestOutputCaps(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "caps", "default")
	r := run(t, m, c.ID, "echo first; yes 0123456 | head -c 50000000; echo last; echo short >&2")
	expect.True(t, r.Exit == 0 && r.Truncated && r.StdoutBytes == 50000011 && r.StderrBytes == 6 && r.Stderr == "short\n",
		"exit %d, truncated %t, %d and %d bytes, stderr %q", r.Exit, r.Truncated, r.StdoutBytes, r.StderrBytes, r.Stderr)
	if len(r.Stdout) > chat.DefaultOutputMax || !strings.HasPrefix(r.Stdout, "first\n0123456\n") || !strings.HasSuffix(r.Stdout, "0123456\nlast\n") || !strings.Contains(r.Stdout, "[chatd left ") {
		t.Errorf("%d bytes: %.20q … %.20q", len(r.Stdout), r.Stdout, r.Stdout[max(0, len(r.Stdout)-20):])
	}
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: "cat", Stdin: strings.Repeat("x", chat.MaxStdin)})
	expect.True(t, err == nil && r.StdoutBytes == chat.MaxStdin && !r.Truncated,
		"stdin: %d bytes, %v", r.StdoutBytes, err)
}

// TestRunTo: the output of a run comes as it is printed, all of it, in order, and
// the daemon holds no more of it than of a short one.
func TestRunTo(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "stream", "default")
	goOn := filepath.Join(c.Home, "go")
	var got [2]int64
	var mu sync.Mutex
	next := byte('0')
	out := func(stream string, p []byte) {
		mu.Lock()
		defer mu.Unlock()
		if stream == chat.Stderr {
			got[1] += int64(len(p))
			return
		}
		if got[0] == 0 { // it waits for that
			must.Do(t, os.WriteFile(goOn, nil, 0o666))
		}
		for _, b := range p { // 0123456789 over and over
			if b != next {
				t.Fatalf("byte %d is %q, want %q", got[0], b, next)
			}
			got[0]++
			if next++; next > '9' {
				next = '0'
			}
		}
	}
	const size = 100_000_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r, err := m.RunTo(operator(t.Context()), c.ID, chat.RunSpec{Command: fmt.Sprintf("printf 0123456789; until test -e go; do sleep 0.05; done; yes 0123456789 | tr -d '\\n' | head -c %d; echo end >&2; exit 3", size-10)}, out)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err != nil || r.Exit != 3 || got != [2]int64{size, 4} || r.StdoutBytes != size || r.Stdout != "" || r.Truncated {
		t.Errorf("%+v, %v, got %d", r, err, got)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the daemon holds %d bytes more", grown)
	}
}
