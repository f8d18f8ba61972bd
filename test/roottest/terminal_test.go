package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
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
	l := must.Get(m.Log(operator(t.Context()), id, 0))(t)
	return l.End
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
	waiting := make(chan chat.Typed, 1)
	go func() {
		got, err := m.InputWait(ctx, c.ID, chat.Input{Text: "y", Wait: &chat.Wait{Until: chat.UntilPrompt}})
		expect.NoError(t, err)
		waiting <- got
	}()
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
	if got := typed(t, m, b.ID, "echo $((6*7))"); !strings.Contains(got.Text, "42") {
		t.Errorf("the other chat: %+v", got)
	}
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
	expect.Is(t, expect.Err(m.Log(chat.WithCaller(t.Context(), chat.Caller{Name: "stranger", UID: 1000, Role: chat.RoleBridge}), c.ID, 0)), chat.ErrNotFound,
		"another bridge reads the log")

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
			if got := typed(t, m, other.ID, "echo $((6*7))"); !strings.Contains(got.Text, "42") {
				t.Errorf("the other chat: %+v", got)
			}
			if n := diskOf(t, filepath.Join(opt.State, "logs", string(c.ID))); n > chat.LogSize {
				t.Errorf("%d bytes on the disk", n)
			}
			if r := run(t, m, c.ID, "ls -l /opt/chatd/log; ls "+filepath.Join(opt.State, "logs")); !strings.Contains(fmt.Sprint(r), "No such file") {
				t.Errorf("the log's directory is seen: %+v", r)
			}
			must.Do(t, m.Reap(ctx, c.ID))
		})
	}
}
