package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// typed types a line and waits for the prompt after it.
func typed(t *testing.T, m *manager, id chat.ID, line string) chat.Typed {
	t.Helper()
	return answered(t, m, id, line, chat.Wait{Until: chat.UntilPrompt})
}

// printed is what the terminal printed since a cursor.
func printed(t *testing.T, m *manager, id chat.ID, since int64) string {
	t.Helper()
	l := must.Get(m.Log(operator(t.Context()), id, since))(t)
	return string(l.Bytes())
}

// endOfLog is where the next byte will be that the terminal prints.
func endOfLog(t *testing.T, m *manager, id chat.ID) int64 {
	t.Helper()
	return must.Get(m.Log(operator(t.Context()), id, 0))(t).End
}

// promptAfter waits until the terminal has printed the text since a cursor and the end of a prompt
// after it. Input typed before that may be answered by this prompt.
func promptAfter(t *testing.T, m *manager, id chat.ID, since int64, text string) {
	t.Helper()
	until(t, fmt.Sprintf("the prompt after %q", text), func() bool {
		_, after, found := strings.Cut(printed(t, m, id, since), text)
		return found && strings.Contains(after, "\x1b]133;B")
	})
}

// TestWait: the bridge's loop in one call.
func TestWait(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "wait", "default")
	got := typed(t, m, c.ID, "echo $((6*7)); (exit 3)")
	if got.Until != chat.UntilPrompt || got.Exit == nil || *got.Exit != 3 || !strings.Contains(got.Text, "42\r\n") || !got.Recording {
		t.Errorf("a command with exit code 3: %+v", got)
	}
	again := typed(t, m, c.ID, "true")
	expect.True(t, again.From == got.Cursor && again.Exit != nil && *again.Exit == 0,
		"the next begins at %d with exit %v, want %d with 0", again.From, again.Exit, got.Cursor)
	if l, err := m.Log(ctx, c.ID, got.Cursor); err != nil || !strings.HasPrefix(l.Text, again.Text) || l.From != got.Cursor {
		t.Errorf("the log from %d: %+v, %v; want what came with the answer, %q", got.Cursor, l, err, again.Text)
	}
	// A .bashrc of the chat's own, with a prompt and a hook of its own, keeps the marks.
	typed(t, m, c.ID, `echo 'PS1="mine> "; PROMPT_COMMAND="true"' > .bashrc; bash --rcfile /opt/chatd/bashrc -i`)
	if got = typed(t, m, c.ID, "false"); got.Exit == nil || *got.Exit != 1 {
		t.Errorf("under a prompt of its own: %+v", got)
	}
	until(t, "a prompt of its own", func() bool { return strings.Contains(printed(t, m, c.ID, got.From), "mine> ") })

	waitQuiet(t, m, c.ID)
	short := chat.Input{Text: "x", Wait: &chat.Wait{Until: chat.UntilPrompt, Max: chat.Duration(200 * time.Millisecond)}}
	if got, err := m.InputWait(ctx, c.ID, short); err != nil || got.Until != chat.UntilMax || !strings.HasPrefix("x", got.Text) {
		t.Errorf("until its time is over: %+v, %v", got, err)
	}
	// While one caller waits, another wait is refused, and a key is accepted.
	waiting := going(func() chat.Typed {
		got, err := m.InputWait(ctx, c.ID, chat.Input{Text: "y", Wait: &chat.Wait{Until: chat.UntilPrompt}})
		expect.NoError(t, err)
		return got
	})
	for got := (chat.Log{}); !strings.Contains(got.Text, "xy"); {
		got = must.Get(m.Log(ctx, c.ID, again.Cursor))(t)
	}
	expect.Is(t, expect.Err(m.InputWait(ctx, c.ID, short)), chat.ErrBusy, "a second who waits")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"C-c"}}))
	if got := <-waiting; got.Exit == nil || *got.Exit != 130 || got.Until != chat.UntilPrompt {
		t.Errorf("after C-c: %+v", got)
	}
	since := endOfLog(t, m, c.ID)
	gone, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		comes(func() bool {
			l, err := m.Log(ctx, c.ID, since)
			return err == nil && strings.Contains(l.Text, "sleep 1000\r\n")
		})
		cancel()
	}()
	expect.Is(t, expect.Err(m.InputWait(gone, c.ID, chat.Input{Text: "sleep 1000", Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}})), context.Canceled,
		"a caller who goes away")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"C-c"}}))
	promptAfter(t, m, c.ID, since, "^C")
	typed(t, m, c.ID, "exit") // of the inner shell
	if got := typed(t, m, c.ID, "exec sh -c 'echo bye; exit 0'"); got.Until != chat.UntilEnded || !strings.Contains(got.Text, "bye\r\n") {
		t.Errorf("when the session ends: %+v", got)
	}
}

// waitQuiet waits until a command has been quiet for a while, which is after all that it printed. A
// busy host may be quiet in between: then it is waited longer.
func waitQuiet(t *testing.T, m *manager, id chat.ID) {
	t.Helper()
	for quiet := 2 * time.Second; ; quiet *= 2 {
		since := endOfLog(t, m, id)
		in := chat.Input{Text: "echo a; sleep 0.2; echo b; sleep 1000", Enter: true, Wait: &chat.Wait{Until: chat.UntilQuiet, Quiet: chat.Duration(quiet), Max: chat.MaxWait}}
		got, err := m.InputWait(operator(t.Context()), id, in)
		must.True(t, err == nil && got.Until == chat.UntilQuiet && got.Exit == nil,
			"until quiet: %+v, %v", got, err)
		if strings.Contains(got.Text, "a\r\nb\r\n") {
			return
		}
		must.True(t, quiet <= longEnough, "until quiet for %s: %+v", quiet, got)
		must.Do(t, m.Input(operator(t.Context()), id, chat.Input{Keys: []string{"C-c"}}))
		promptAfter(t, m, id, since, "^C")
	}
}

// TestForgedMarks: whatever marks a chat prints, a wait gets an answer, and other callers get
// theirs.
func TestForgedMarks(t *testing.T) {
	m := open(t, attackOptions(t))
	a, b := create(t, m, "forger", "default"), create(t, m, "other", "default")
	got := typed(t, m, a.ID, `printf '\e]133;D;77\a\e]133;A\a\e]133;B\a'; sleep 1`)
	expect.True(t, got.Exit != nil && *got.Exit == 77, "a forged code is the chat's word: %+v", got)
	in := chat.Input{Text: `while :; do printf '\e]133;D;1\e]133;D;%d\e]133;\e]133' 99999999999; done`, Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt, Max: chat.Duration(time.Second)}}
	if got, err := m.InputWait(operator(t.Context()), a.ID, in); err != nil || got.Until == chat.UntilQuiet || len(got.Bytes()) > chat.MaxTyped {
		t.Errorf("a flood of marks: until %s, %d bytes, %v", got.Until, len(got.Bytes()), err)
	}
	got = typed(t, m, b.ID, "echo $((6*7))")
	expect.True(t, strings.Contains(got.Text, "42"), "the other chat: %+v", got)
}

// TestLog: what the terminal printed is kept, in bounds, over sleep and a restart of chatd,
// and gone when the chat is.
func TestLog(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	c, other := create(t, m, "log", "default"), create(t, m, "log2", "default")
	typed(t, m, c.ID, "echo first $((6*7))")
	typed(t, m, other.ID, "echo other")
	typed(t, m, c.ID, "tmux new-window 'echo in the second $((6*7)) window; until test -e ~/seen; do sleep 0.1; done'; tmux select-window -t 0")
	until(t, "the second window is in the log", func() bool { return strings.Contains(printed(t, m, c.ID, 0), "second 42 window") })
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "seen"), nil, 0o644))
	l, err := m.Log(ctx, c.ID, -1)
	if err != nil || l.From != 0 || l.Lost != 0 || !strings.Contains(l.Text, "first 42\r\n") || !strings.Contains(l.Text, "second 42 window") || strings.Contains(l.Text, "other") {
		t.Errorf("%+v, %v", l, err)
	}
	expect.Is(t, expect.Err(m.Log(ctx, c.ID, l.End+1)), chat.ErrInvalid, "a cursor behind the end")

	// chatd is restarted while the chat prints.
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "sleep 0.2; seq 1 2000; echo over", Enter: true}))
	must.Do(t, m.Close())
	time.Sleep(500 * time.Millisecond)
	m = open(t, opt)
	followed, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	var all strings.Builder
	over := errors.New("over")
	err = m.FollowLog(followed, c.ID, 0, func(l chat.Log) error {
		all.Write(l.Bytes())
		if strings.Contains(all.String(), "\r\nover\r\n") {
			return over
		}
		return nil
	})
	if !errors.Is(err, over) || !strings.Contains(all.String(), "first 42") || !strings.Contains(all.String(), "\r\n999\r\n1000\r\n1001\r\n") || strings.Contains(all.String(), "chatd left") {
		t.Errorf("after a restart of chatd: %v, %d bytes", err, all.Len())
	}

	before := diskOf(t, filepath.Join(opt.State, "logs"))
	typed(t, m, c.ID, "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo done $((6*7))")
	awaitLog(t, m, c.ID, "done 42") // which comes after the screen has it
	start := must.Get(m.Log(ctx, c.ID, 0))(t)
	if start.Lost != start.From || start.From == 0 || start.End-start.From > chat.LogSize || start.End-start.From < chat.LogSize/2 {
		t.Errorf("after 100 MB %d to %d are kept, %d lost", start.From, start.End, start.Lost)
	}
	if n := diskOf(t, filepath.Join(opt.State, "logs")); n > before+chat.LogSize {
		t.Errorf("%d bytes on the disk, want at most %d more than %d", n, chat.LogSize, before)
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	asleep, err := m.Log(ctx, c.ID, start.End)
	expect.True(t, err == nil && !asleep.Recording, "asleep: %+v, %v", asleep, err)
	must.Do(t, m.Reap(ctx, c.ID))
	expect.Is(t, expect.Err(os.Stat(filepath.Join(opt.State, "logs", string(c.ID)))), os.ErrNotExist,
		"the log of a chat that was reaped")
}

// awaitLog waits until text is in the last 1,000 bytes of the chat's log.
func awaitLog(t *testing.T, m *manager, id chat.ID, text string) {
	t.Helper()
	var end chat.Log
	if !comes(func() bool {
		all := must.Get(m.Log(operator(t.Context()), id, 0))(t)
		end = must.Get(m.Log(operator(t.Context()), id, max(all.From, all.End-1000)))(t)
		return strings.Contains(end.Text, text)
	}) {
		t.Fatalf("the end of the log is %.2000q, want %q in it", end.Text, text)
	}
}

func diskOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	must.Do(t, filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Size()
		}
		return err
	}))
	return n
}

// TestLogWriter: a chat that ends or stops the writer of its log, or writes in its place,
// loses its own log and nothing else, and chatd says so.
func TestLogWriter(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	for name, attack := range map[string]string{
		"killed":   "pkill -9 -f 'chatd-shim log'",
		"stopped":  "pkill -STOP -f 'chatd-shim log'",
		"flooded":  "timeout 1 dd if=/dev/zero of=/opt/chatd/log bs=64k 2>/dev/null",
		"unpiped":  "tmux pipe-pane",
		"drained":  "timeout 1 cat /opt/chatd/log > /dev/null",
		"replaced": "tmux pipe-pane 'cat > /opt/chatd/log'",
	} {
		t.Run(name, func(t *testing.T) {
			c, other := create(t, m, name, "default"), create(t, m, name+" other", "default")
			must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: attack + "; touch ~/did", Enter: true}))
			until(t, attack, exists(filepath.Join(c.Home, "did")))
			gone := name == "killed" || name == "unpiped"
			var l chat.Log
			if !comes(func() bool { // another writer may take its time to begin
				l = must.Get(m.Log(ctx, c.ID, -1))(t)
				return gone == !l.Recording && (name == "replaced" || gone == strings.Contains(l.Text, "the writer of this log has ended"))
			}) {
				t.Errorf("recording is %v: ...%q", l.Recording, l.Text[max(0, len(l.Text)-200):])
			}
			_, err := m.InputWait(ctx, c.ID, chat.Input{Text: "true", Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt, Max: chat.Duration(time.Second)}})
			expect.True(t, errors.Is(err, chat.ErrWrongPhase) == gone, "waiting gave %v", err)
			got := typed(t, m, other.ID, "echo $((6*7))")
			expect.True(t, strings.Contains(got.Text, "42"), "the other chat: %+v", got)
			n := diskOf(t, filepath.Join(opt.State, "logs", string(c.ID)))
			expect.True(t, n <= chat.LogSize, "%d bytes on the disk", n)
			r := run(t, m, c.ID, "ls -l /opt/chatd/log; ls "+filepath.Join(opt.State, "logs"))
			expect.True(t, strings.Contains(fmt.Sprint(r), "No such file"), "the log's directory is seen: %+v", r)
			must.Do(t, m.Reap(ctx, c.ID))
		})
	}
}

// screenOf is the text of a chat's terminal, with what was scrolled away.
func screenOf(t *testing.T, m *manager, id chat.ID) chat.Screen {
	t.Helper()
	return must.Get(m.ScreenWith(operator(t.Context()), id, chat.ScreenSpec{History: 500}))(t)
}

// checkDir fails unless the chat's shell is in dir.
func checkDir(t *testing.T, m *manager, c chat.Chat, dir string) {
	t.Helper()
	typed(t, m, c.ID, "pwd -P >~/pwd")
	got, err := os.ReadFile(filepath.Join(c.Home, "pwd"))
	expect.True(t, err == nil && string(got) == dir+"\n", "the shell is in %q, want %q: %v", got, dir, err)
}

// TestTerminalOverSleep: after a sleep the shell is in its last directory, whatever its name, the
// terminal has its size, and shows again what it showed. The log has that once, and goes on.
func TestTerminalOverSleep(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "again", "default")
	odd := "a dir\n'\"$(touch no) \xff (deleted)"
	must.Do(t, os.MkdirAll(filepath.Join(c.Home, odd), 0o777))
	must.Do(t, os.Chmod(filepath.Join(c.Home, odd), 0o777))
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Size: &chat.TTY{Rows: 30, Cols: 90}}))
	expect.Equal(t, typed(t, m, c.ID, `stty size; printf '%0100d\e[5GX'`).Plain, "30 90\n"+strings.Repeat("0", 94)+"X00000",
		"of another size")
	typed(t, m, c.ID, "for i in {1..100}; do echo before-$i; done; cd a*")
	for round := range 2 {
		must.Get(m.Sleep(ctx, c.ID))(t)
		must.Get(m.Wake(ctx, c.ID))(t)
		s := screenOf(t, m, c.ID)
		expect.True(t, s.Cols == 90 && s.Rows == 30,
			"the terminal has %d columns and %d rows", s.Cols, s.Rows)
		texts := map[string]int{"before-1\n": 1, "before-100\n": 1, "above is what": round + 1,
			"no log of this terminal": 0} // the writer began as soon as it was asked to
		for want, times := range texts {
			n := strings.Count(s.Text, want)
			expect.True(t, n == times, "round %d: %q is there %d times in %q", round, want, n, s.Text)
		}
		expect.Equal(t, typed(t, m, c.ID, "tmux show -wv window-size").Plain, "",
			"window-size of its own")
		checkDir(t, m, c, filepath.Join(c.Home, odd))
	}
	log := must.Get(m.Log(ctx, c.ID, -1))(t)
	text := string(log.Bytes())
	expect.Equal(t, strings.Count(text, "before-57\r\n"), 1, "the log has a line … times")
	if !strings.Contains(text, "show -wv") || strings.Contains(text, "writer of this log has ended") {
		t.Errorf("the log ends in %q", text[max(0, len(text)-1000):])
	}
	expect.True(t, !exists(filepath.Join(c.Home, "no"))(), "a directory's name was run")
}

// TestAttackTerminalOverSleep: whatever a chat leaves where its terminal is written down, it sleeps
// and wakes, with a shell at home and the size of a new terminal.
func TestAttackTerminalOverSleep(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "hostile", "default")
	// The server's job writes the file; without the job what the chat wrote is left.
	const stop = "tmux set-environment -g XDG_STATE_HOME /; " +
		"f=$XDG_STATE_HOME/chatd-terminal; rm -f $f; "
	for what, line := range map[string]string{
		"a directory that is gone":   "mkdir -p ~/gone; cd ~/gone; rmdir ~/gone",
		"a link to elsewhere":        "mkdir -p ~/gone; cd ~/gone; rmdir ~/gone; ln -s /etc ~/gone",
		"a fifo":                     stop + "mkfifo $f",
		"a directory":                stop + "mkdir $f; touch $f/x",
		"a device":                   stop + "ln -s /dev/zero $f",
		"nothing but text":           stop + "yes | head -c 3M >$f",
		"a size that is none":        stop + `printf '9;touch\t9\n/tmp\0text' >$f`,
		"a size beyond all":          stop + `printf '99999 99999\n/tmp\0text' >$f`,
		"a long directory":           stop + `printf '120 40\n/%09000d\0text' 0 >$f`,
		"a server that says nothing": "kill -STOP $(tmux display -p '#{pid}')",
	} {
		must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: line, Enter: true}))
		if what == "a server that says nothing" {
			until(t, "the server stands", func() bool {
				all := must.Get(m.Processes(ctx, c.ID))(t)
				for _, p := range all.Processes {
					if strings.HasPrefix(p.Name, "tmux") && p.State == chat.ProcessStopped {
						return true
					}
				}
				return false
			})
		} else {
			typed(t, m, c.ID, "true")
		}
		must.Get(m.Sleep(ctx, c.ID))(t)
		must.Get(m.Wake(ctx, c.ID))(t)
		s := screenOf(t, m, c.ID)
		expect.True(t, s.Cols == 120 && s.Rows == 40,
			"%s: the terminal has %d columns and %d rows", what, s.Cols, s.Rows)
		checkDir(t, m, c, c.Home)
		typed(t, m, c.ID, "rm -rf $XDG_STATE_HOME/chatd-terminal ~/gone")
	}
}

// attachment is a client attached to a chat's terminal.
type attachment struct {
	mu   sync.Mutex
	seen strings.Builder
	run  chan string
	end  context.CancelFunc
	over chan error
}

func attachTo(t *testing.T, m *manager, id chat.ID, readOnly bool) *attachment {
	t.Helper()
	ctx, end := context.WithCancel(operator(t.Context()))
	a := &attachment{run: make(chan string, 1), over: make(chan error, 1), end: end}
	spec := chat.Attach{TTY: chat.TTY{Rows: 30, Cols: 100}, ReadOnly: readOnly, Started: func(run string) { a.run <- run }}
	go func() {
		_, err := m.Attach(ctx, id, spec, func(_ string, p []byte) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.seen.Write(p)
		})
		a.over <- err
	}()
	t.Cleanup(end)
	return a
}

func (a *attachment) sees(t *testing.T, want string) string {
	t.Helper()
	var seen string
	if !comes(func() bool {
		a.mu.Lock()
		seen = a.seen.String()
		a.mu.Unlock()
		return strings.Contains(termsafe.String(seen, termsafe.Plain), want)
	}) {
		t.Fatalf("never saw %q in %q", want, seen)
	}
	return seen
}

// TestAttach: two operators at one terminal, one of whom may only look; a size, a hostile
// program, letting go, and the end of the session.
func TestAttach(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "attach", "default")
	a, looks := attachTo(t, m, c.ID, false), attachTo(t, m, c.ID, true)
	run, lookRun := <-a.run, <-looks.run
	typeIn := func(run, text string) {
		t.Helper()
		must.Do(t, m.WriteStdin(ctx, c.ID, run, io.NopCloser(strings.NewReader(text)), false))
	}
	a.sees(t, "$")
	looks.sees(t, "$")
	typeIn(lookRun, "echo not for me\r")
	typeIn(run, "echo $((6*7)) is; tput cols; tty\r")
	a.sees(t, "42 is")
	looks.sees(t, "42 is")
	a.sees(t, "120")
	expect.True(t, !strings.Contains(looks.sees(t, "120"), "not for me"), "who may only look has typed")
	must.Do(t, m.SignalRun(ctx, c.ID, run, chat.RunSignal{Signal: "WINCH", TTY: &chat.TTY{Rows: 20, Cols: 77}}))
	typeIn(run, "clear; echo $(tput cols) st''ays\r")
	a.sees(t, "120 stays")
	// The program that owns the operator's terminal filters the output, see package termsafe.
	since := endOfLog(t, m, c.ID)
	typeIn(run, `printf '\033]52;c;aGk=\a\033]0;t\a'; echo har''mless`+"\r")
	seen := termsafe.String(a.sees(t, "harmless"), termsafe.Full)
	expect.True(t, !strings.Contains(seen, "\x1b]") && !strings.Contains(seen, "\x1b[c") && !strings.Contains(seen, "\x1b[>"), "came through: %q", seen)
	a.end()
	expect.Is(t, <-a.over, nil, "letting go")
	promptAfter(t, m, c.ID, since, "harmless")
	got := typed(t, m, c.ID, "echo still $((6*7))")
	expect.True(t, strings.Contains(got.Text, "still 42"), "after letting go: %+v", got)
	leave(t, m, c.ID)
	expect.Is(t, <-looks.over, nil, "the end of the session")
	expect.Is(t, expect.Err(m.Attach(ctx, c.ID, chat.Attach{}, nil)), chat.ErrInvalid, "without a size")
}
