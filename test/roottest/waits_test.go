package roottest

import (
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	unprivileged "github.com/chatd/chatd/front"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// answered types a line and waits as w says. The answer is as the front gives it.
func answered(t *testing.T, m *manager, id chat.ID, line string, w chat.Wait) chat.Typed {
	t.Helper()
	got, err := unprivileged.RenderTerminals(front(t, m)).InputWait(operator(t.Context()), id, chat.Input{Text: line, Enter: true, Wait: &w})
	must.True(t, err == nil, "typing %q: %v", line, err)
	return got
}

// interrupt ends what runs, and waits for the prompt.
func interrupt(t *testing.T, m *manager, id chat.ID) {
	t.Helper()
	since := endOfLog(t, m, id)
	must.Do(t, m.Input(operator(t.Context()), id, chat.Input{Keys: []string{"ctrl-c"}}))
	promptAfter(t, m, id, since, "^C")
}

// TestPlain: the answer of a command is what it printed and nothing else, and no line makes the
// wait hang that the shell has dropped or does not take for whole.
func TestPlain(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "plain", "default")
	for line, want := range map[string]string{
		`echo "hi!x" there!`:                     "hi!x there!",
		`printf 'no line end'`:                   "no line end",
		"printf '10%%\\r50%%\\r100%%\\ndone\\n'": "100%\ndone",
		"echo a very long line that is wider than the terminal has columns, so that readline draws it again, and once more, as it goes | wc -w": "24",
		"true":                           "",
		"for i in 1 2\ndo echo $i\ndone": "1\n2",
		`printf '\e[31mred\e[m\e]0;title\a\e[2Kgone\rhere'`: "hereone",
	} {
		got := typed(t, m, c.ID, line)
		if got.Plain != want || got.Until != chat.UntilPrompt || got.Program != "bash" || len(got.Bytes()) <= len(want) {
			t.Errorf("%q is answered by %q until %s under %s, want %q", line, got.Plain, got.Until, got.Program, want)
		}
	}
	prompt := chat.Wait{Until: chat.UntilPrompt}
	expect.Equal(t, answered(t, m, c.ID, `echo "open`, prompt).Until, chat.UntilMore,
		"a quote that is open: until")
	if got := answered(t, m, c.ID, `done"`, prompt); got.Until != chat.UntilPrompt || !strings.Contains(got.Text, "open\r\ndone\r\n") {
		t.Errorf("the rest of it: until %s: %q", got.Until, got.Text)
	}
	// A shell that has history expansion drops the line, and runs no hook.
	typed(t, m, c.ID, "set -H")
	if got := answered(t, m, c.ID, `echo "x!nothing"`, prompt); got.Until != chat.UntilPrompt || got.Exit != nil || !strings.Contains(got.Text, "event not found") {
		t.Errorf("a line that was dropped: until %s: %q", got.Until, got.Text)
	}
}

// TestWaits: neither what is typed nor silence is taken for an answer.
func TestWaits(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "waits", "default")
	half := chat.Duration(500 * time.Millisecond)
	quiet := chat.Wait{Until: chat.UntilQuiet, Quiet: half}
	if got := answered(t, m, c.ID, "sleep 2; echo late; sleep 1000", quiet); got.Until != chat.UntilQuiet || got.Plain != "late" {
		t.Errorf("quiet after a slow start: until %s: %q", got.Until, got.Plain)
	}
	interrupt(t, m, c.ID)
	if got := answered(t, m, c.ID, "sleep 2; echo one; sleep 1000", chat.Wait{Until: chat.UntilOutput}); got.Until != chat.UntilOutput || got.Plain != "one" {
		t.Errorf("output: until %s: %q", got.Until, got.Plain)
	}
	interrupt(t, m, c.ID)
	screen := chat.Wait{Until: chat.UntilScreen, Pattern: "^n = 7$"}
	if got := answered(t, m, c.ID, "for i in 5 6 7 8; do sleep .5; echo n = $i; done; sleep 1000", screen); got.Until != chat.UntilScreen || !strings.Contains(got.Plain, "n = 7") {
		t.Errorf("a pattern: until %s: %q", got.Until, got.Plain)
	}
	interrupt(t, m, c.ID)
	expect.Equal(t, answered(t, m, c.ID, "echo over", chat.Wait{Until: chat.UntilScreen, Pattern: "never"}).Until, chat.UntilPrompt,
		"a pattern that a command does not show: until")
	silent := chat.Wait{Until: chat.UntilQuiet, Quiet: chat.Duration(10 * time.Millisecond), Max: chat.Duration(2 * time.Second)}
	expect.Equal(t, answered(t, m, c.ID, "sleep 1000", silent).Until, chat.UntilMax,
		"a silent program: until")
	interrupt(t, m, c.ID)
	startAgent(t, m, c)
	submitted := chat.Wait{Until: chat.UntilScreen, Pattern: "SUBMITTED<hello>", Quiet: half}
	if got := answered(t, m, c.ID, "hello", submitted); got.Until != chat.UntilScreen || got.Program != "agent" || !strings.Contains(got.Plain, "SUBMITTED<hello>\n>") || strings.Contains(got.Plain, "\x1b") {
		t.Errorf("under an agent: until %s in %s: %q", got.Until, got.Program, got.Plain)
	}
	long := strings.Repeat("row\n", 100)
	for { // a busy host may be quiet in between
		got := answered(t, m, c.ID, long, quiet)
		if strings.Count(got.Plain, "row") >= 100 {
			break
		}
		if quiet.Quiet *= 2; quiet.Quiet.D() > longEnough {
			t.Fatalf("of 100 rows %d are shown", strings.Count(got.Plain, "row"))
		}
	}
}

// TestHistory: the screen with the lines before it, as text.
func TestHistory(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "history", "default")
	typed(t, m, c.ID, "seq 100 400")
	for history, first := range map[int]string{0: "362", 50: "312", 2000: "seq 100 400"} {
		s, err := m.ScreenWith(ctx, c.ID, chat.ScreenSpec{History: history})
		if err != nil || s.Program != "bash" || s.History > history || !strings.Contains(strings.SplitN(s.Text, "\n", 2)[0], first) || strings.Count(s.Text, "\n") != s.History+39 {
			t.Errorf("history %d: %d lines, %d of history, from %.40q on: %v", history, strings.Count(s.Text, "\n"), s.History, s.Text, err)
		}
	}
}

// TestTerm: a program meets the same terminal in the chat's and in a run's.
func TestTerm(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "term", "default")
	const show = "echo $TERM $COLORTERM; infocmp >/dev/null && echo known"
	want := typed(t, m, c.ID, show).Plain
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: show, TTY: &chat.TTY{Rows: 24, Cols: 80}})
	if got := strings.TrimSpace(strings.ReplaceAll(r.Stdout, "\r", "")); err != nil || got != want || want != "tmux-256color truecolor\nknown" {
		t.Errorf("in a run %q, in the terminal %q: %v", got, want, err)
	}
}
