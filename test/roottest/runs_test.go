package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	got, err := m.Get(operator(t.Context()), c.ID)
	expect.True(t, err == nil && got.Awake, "the chat's terminal is gone: %+v, %v", got, err)
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
	edit(opt, "short", func(p *chat.Profile) { p.TimeoutMax = chat.Duration(time.Second) })
	m := open(t, opt)
	c := create(t, m, "timeout max", "short")
	ctx := operator(t.Context())
	_, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "touch ran", Timeout: chat.Duration(2 * time.Second)})
	expect.Says(t, err, chat.ErrInvalid, "want at most 1s, which is timeout_max of profile short", "")
	expect.True(t, expect.Err(os.Stat(filepath.Join(c.Home, "ran"))) != nil, "it ran")
	r, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "sleep 5013"})
	expect.True(t, err == nil && r.TimedOut, "%+v, %v", r, err)
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
			nsenter := childNamed(os.Getpid(), "nsenter")
			if nsenter == 0 {
				t.Error("there is no nsenter")
				return
			}
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

// childNamed is a child of a process by its name, 0 where there is none.
func childNamed(parent int, name string) int {
	for _, list := range glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) {
		for _, child := range strings.Fields(text(list)) { // none where the thread has ended
			if commOf(number(child)) == name {
				return number(child)
			}
		}
	}
	return 0
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
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	expect.True(t, grown <= 8<<20, "the daemon holds %d bytes more", grown)
}

// endingBody is the body of a request whose context ends when it is closed, as that of net/http
// does.
type endingBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b endingBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// TestInputOfARunThatEnds: a caller that still has input for a run that ends is told that the run
// has ended, and not that the caller left, which chatd run would print.
func TestInputOfARunThatEnds(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "ends first", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "sleep 0.5", OpenStdin: true})
	ctx, end := context.WithCancel(operator(t.Context()))
	defer end()
	body, keepsOpen := io.Pipe()
	defer keepsOpen.Close()
	err := m.WriteStdin(ctx, c.ID, r.ID, endingBody{body, end}, true)
	expect.True(t, errors.Is(err, chat.ErrWrongPhase), "%v, want wrong phase", err)
}

// endedAgo has a background run that has ended, ended so long ago.
func endedAgo(t *testing.T, dir string, ago time.Duration) {
	t.Helper()
	name := filepath.Join(dir, "result.json")
	text := must.Get(os.ReadFile(name))(t)
	var e map[string]any
	must.Do(t, json.Unmarshal(text, &e))
	e["at"] = time.Now().UTC().Add(-ago)
	text = must.Get(json.Marshal(e))(t)
	must.Do(t, os.WriteFile(name, text, 0o600))
}

// TestRunsAreKept: a run that has ended is kept for 30 minutes, also over a restart, and is then as
// one that never was, with its files; of more output than a chat may keep the oldest goes first.
func TestRunsAreKept(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "kept", "default")
	ctx := operator(t.Context())
	files := func(run string) string { return filepath.Join(opt.Run, "runs", string(c.ID), run) }
	gone := func(run string) bool {
		_, err := m.ShowRun(ctx, c.ID, run)
		_, ferr := os.Lstat(files(run))
		return errors.Is(err, chat.ErrNotFound) && errors.Is(ferr, os.ErrNotExist)
	}
	var runs []string
	for range 3 {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo kept"})
		awaitRun(t, m, c.ID, r.ID)
		runs = append(runs, r.ID)
	}
	must.Do(t, m.Close())
	old, soon, young := runs[0], runs[1], runs[2]
	endedAgo(t, files(old), chat.RunRetention+time.Second)
	endedAgo(t, files(soon), chat.RunRetention-3*time.Second)
	endedAgo(t, files(young), chat.RunRetention-5*time.Minute)
	m = open(t, opt)
	expect.True(t, gone(old), "a run that ended more than 30 minutes ago is kept")
	expect.True(t, comes(func() bool { return gone(soon) }), "a run whose 30 minutes are over is kept")
	r := awaitRun(t, m, c.ID, young)
	expect.True(t, r.Result.Stdout == "kept\n", "a run that ended 25 minutes ago: %+v", r)
	// full is in runs, each with both streams full.
	const full = chat.MaxRetainedOutput / (2 * chat.DefaultOutputMax)
	for range full {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: "head -c 1100000 /dev/zero | tee /dev/stderr"})
		runs = append(runs, r.ID)
		awaitRun(t, m, c.ID, r.ID)
	}
	comes(func() bool { return gone(young) }) // the oldest go once the last one's end is known
	expect.True(t, gone(young) && !gone(runs[len(runs)-1]) && !gone(runs[len(runs)-2]),
		"of more than a chat may keep the oldest is kept, or a newer one is gone")
}

// TestRunHasASession: a run leads a session (setsid(2)) that it can name, whatever kind of run it
// is. Field 6 of proc_pid_stat(5) is 0 where the session is outside the pid namespace.
func TestRunHasASession(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "has a session", "default")
	const show = "read _ _ _ _ _ sid _ < /proc/self/stat; echo session $sid of $$"
	want := func(what, out string) {
		t.Helper()
		f := strings.Fields(out)
		expect.True(t, len(f) == 4 && f[1] != "0" && f[1] == f[3], "%s: %q", what, out)
	}
	want("a run", run(t, m, c.ID, show).Stdout)
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: show, TTY: &chat.TTY{Rows: 24, Cols: 80}})
	must.Do(t, err)
	want("a run with a terminal", r.Stdout)
	b := startRun(t, m, c.ID, chat.RunSpec{Command: show})
	want("a background run", awaitRun(t, m, c.ID, b.ID).Result.Stdout)
}

// hog is a shell command whose child is ended for memory_max, which says nothing and exits 1, as an
// agent does whose worker the kernel takes.
const hog = `perl -e '$x = "a" x 600000000' >/dev/null 2>&1; exit 1`

// TestLimitsAreSaid: which limit ended what is in the answer of a run, in that of a background
// run, and in the log of the terminal.
func TestLimitsAreSaid(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "says why", "default")
	outOfMemory := func(what string, r chat.RunResult) {
		t.Helper()
		if why := strings.Join(r.Why, "; "); r.Exit != 1 || r.EndedBy != chat.EndedByMemory || !strings.Contains(why, "256MiB (memory_max)") {
			t.Errorf("%s: %+v", what, r)
		}
	}
	outOfMemory("run", run(t, m, c.ID, hog))
	b := startRun(t, m, c.ID, chat.RunSpec{Command: hog})
	outOfMemory("background run", *awaitRun(t, m, c.ID, b.ID).Result)

	forks := run(t, m, c.ID, "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null; exit 3")
	why := strings.Join(forks.Why, "; ")
	expect.True(t, forks.PidsRefused != 0 && strings.Contains(why, "200 processes and threads (pids_max)"), "forks: %+v", forks)
	r := run(t, m, c.ID, "true")
	expect.True(t, len(r.Why) == 0 && r.EndedBy == "", "a run that met nothing: %+v", r)

	left := run(t, m, c.ID, "sleep 300 >/dev/null 2>&1 & sleep 300 >/dev/null 2>&1 & echo started")
	if why := strings.Join(left.Why, "; "); left.Exit != 0 || left.EndedBy != "" || !strings.HasPrefix(why, "2 processes that the command left running ended with it") {
		t.Errorf("a server that was left: %+v", left)
	}

	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "(" + hog + ")", Enter: true}))
	until(t, "the terminal's log says which limit it met", func() bool {
		return strings.Contains(terminalLog(t, m, c.ID), "[chatd: out of memory: the kernel ended 1 process of the terminal")
	})
}

// terminalLog is everything that is kept of a terminal.
func terminalLog(t *testing.T, m *manager, id chat.ID) string {
	t.Helper()
	var text strings.Builder
	for at := int64(-1); ; {
		l := must.Get(m.Log(operator(t.Context()), id, at))(t)
		text.Write(l.Bytes())
		if at = l.Cursor; at >= l.End {
			return text.String()
		}
	}
}

// TestRunsSayWhatEndedThem: a run that is ended from outside says by what, in the foreground and
// in the background.
func TestRunsSayWhatEndedThem(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	ways := map[chat.EndedBy]func(t *testing.T, c chat.Chat, runs []string){
		chat.EndedBySleep: func(t *testing.T, c chat.Chat, _ []string) { must.Get(m.Sleep(ctx, c.ID))(t) },
		chat.EndedByReap:  func(t *testing.T, c chat.Chat, _ []string) { must.Do(t, m.Reap(ctx, c.ID)) },
		chat.EndedBySession: func(t *testing.T, c chat.Chat, _ []string) {
			must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "exit", Enter: true}))
		},
		chat.EndedByRequest: func(t *testing.T, c chat.Chat, runs []string) {
			for _, r := range runs {
				must.Do(t, m.EndRun(ctx, c.ID, r))
			}
		},
	}
	for by, end := range ways {
		t.Run(string(by), func(t *testing.T) {
			c := create(t, m, "ended by "+string(by), "default")
			spec := chat.RunSpec{Argv: []string{"sleep", "600"}, Timeout: chat.Duration(10 * time.Minute)}
			b := startRun(t, m, c.ID, spec)
			begun, ended := make(chan string, 1), make(chan chat.RunResult, 1)
			spec.Started = func(run string) { begun <- run }
			go func() {
				r, err := m.Run(ctx, c.ID, spec)
				expect.NoError(t, err)
				ended <- r
			}()
			end(t, c, []string{b.ID, <-begun})
			r := <-ended
			expect.True(t, r.EndedBy == by && len(r.Why) == 1, "in the foreground: %+v", r)
			if by == chat.EndedByReap {
				return // a background run of it is gone
			}
			if r := awaitRun(t, m, c.ID, b.ID).Result; r.EndedBy != by || len(r.Why) != 1 {
				t.Errorf("in the background: %+v", r)
			}
		})
	}
	c := create(t, m, "what the log says", "default")
	must.Get(m.Sleep(ctx, c.ID))(t)
	if log := terminalLog(t, m, c.ID); !strings.Contains(log, "[chatd: the chat was put to sleep]") {
		t.Errorf("the log of a chat that sleeps: %q", log)
	}
}

// TestRunsSayWhatWasRefused: the answer of a run, and of a background run, names each file that the
// rules refused a program meanwhile, with the rule, once; the next run has none of it.
func TestRunsSayWhatWasRefused(t *testing.T) {
	opt := ruledOptions(t, "access:\n  useDefaults: false\n  deny: ['**/*.pem']\n")
	m := open(t, opt)
	c := ruled(t, m, "refused runs", "old.pem")
	const command = "for i in 1 2 3; do cat old.pem; done; echo x >new.pem; cat new.pem; true"
	want := []chat.Denied{
		{Op: "open", Path: c.Home + "/old.pem", Rule: "deny **/*.pem"}, {Op: "open", Path: c.Home + "/new.pem", Rule: "deny **/*.pem"},
	}
	got := run(t, m, c.ID, command)
	expect.True(t, slices.Equal(got.Denied, want), "a run: %+v", got.Denied)
	got = run(t, m, c.ID, "echo")
	expect.True(t, len(got.Denied) == 0, "the next run: %+v", got.Denied)
	ctx := operator(t.Context())
	r := must.Get(m.StartRun(ctx, c.ID, chat.RunSpec{Command: command}))(t)
	until(t, "the background run ends", func() bool {
		all := must.Get(m.Runs(ctx, c.ID))(t)
		for _, one := range all.Runs {
			if one.ID == r.ID {
				r = one
			}
		}
		return r.Result != nil
	})
	if !slices.Equal(r.Result.Denied, want) {
		t.Errorf("a background run: %+v", r.Result.Denied)
	}
}

// TestRunsSayWhatEgressRefused: so of names and ports that the egress does not open.
func TestRunsSayWhatEgressRefused(t *testing.T) {
	newInternet(t)
	m := open(t, named(t, usual...))
	a := inmateOf(t, m, "refused egress", "named")
	must.Get(m.Wake(operator(t.Context()), a.ID))(t)
	var got chat.RunResult
	until(t, "chatd-egress has started and answers", func() bool {
		got = run(t, m, a.ID, "getent hosts other.example.test; true")
		return len(got.Denied) > 0
	})
	want := chat.Denied{Op: "connect", Host: "next.example.test"}
	if got = run(t, m, a.ID, "getent hosts next.example.test; true"); !slices.Contains(got.Denied, want) {
		t.Errorf("%+v, want %+v", got.Denied, want)
	}
}
