package roottest

import (
	"path/filepath"
	"regexp"
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
	got := answered(t, m, c.ID, "sleep 2; echo one; sleep 1000", chat.Wait{Until: chat.UntilOutput})
	expect.True(t, got.Until == chat.UntilOutput && got.Plain == "one", "output: until %s: %q", got.Until, got.Plain)
	interrupt(t, m, c.ID)
	screen := chat.Wait{Until: chat.UntilScreen, Pattern: "^n = 7$"}
	got = answered(t, m, c.ID, "for i in 5 6 7 8; do sleep .5; echo n = $i; done; sleep 1000", screen)
	expect.True(t, got.Until == chat.UntilScreen && strings.Contains(got.Plain, "n = 7"), "a pattern: until %s: %q", got.Until, got.Plain)
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
	got := strings.TrimSpace(strings.ReplaceAll(r.Stdout, "\r", ""))
	expect.True(t, err == nil && got == want && want == "tmux-256color truecolor\nknown", "in a run %q, in the terminal %q: %v", got, want, err)
}

// TestTextPressesNoKey: a text with the end mark of a bracketed paste stays in its frame: bash, which
// asks for bracketed paste, runs nothing of it without Enter.
func TestTextPressesNoKey(t *testing.T) {
	m := open(t, options(t))
	c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "presses no key"})
	must.Do(t, err)
	type input = chat.Input
	const text = "echo a\x1b[201~\rtouch pwned\r\u009b201~\rtouch pwned\r"
	must.Do(t, m.Input(operator(t.Context()), c.ID, input{Text: text}))
	must.Do(t, m.Input(operator(t.Context()), c.ID, input{Keys: []string{"C-c"}}))
	typed := must.Get(m.InputWait(operator(t.Context()), c.ID, input{Text: "echo control > control",
		Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}))(t)
	expect.True(t, exists(filepath.Join(c.Home, "control"))(), "control: %+v", typed)
	expect.True(t, !exists(filepath.Join(c.Home, "pwned"))(), "the text pressed Enter")
	err = m.Input(operator(t.Context()), c.ID, input{Text: "\x1b\x03"})
	expect.Is(t, err, chat.ErrInvalid, "control characters alone")
}

// TestPatternAcrossTheWrap: a wait finds its pattern in a line as it was printed, wherever the
// terminal wraps it.
func TestPatternAcrossTheWrap(t *testing.T) {
	m := open(t, options(t))
	c := must.First(m.Create(operator(t.Context()), chat.Spec{ExternalID: "wraps"}))(t)
	wait := chat.Wait{Until: chat.UntilScreen, Pattern: "^x{115}a long word$"}
	got := answered(t, m, c.ID, "printf '%0115d' 0 | tr 0 x; echo a long word; sleep 1000", wait)
	expect.True(t, got.Until == chat.UntilScreen, "the wait ended by %s: %q", got.Until, got.Plain)
}

// TestStyledScreen: the screen is text; with styles it has SGR sequences, and none that a chat
// could do more with.
func TestStyledScreen(t *testing.T) {
	m := open(t, attackOptions(t))
	k := unprivileged.RenderTerminals(front(t, m))
	ctx := operator(t.Context())
	c := create(t, m, "styled", "default")
	typed(t, m, c.ID, `printf '\e]0;title\a\e]8;;http://192.0.2.1/\aa link\e]8;;\a \e[1;31mred\e[0m %s\n' end`)
	for deadline := time.Now().Add(longEnough); ; time.Sleep(20 * time.Millisecond) {
		plain := must.Get(m.Screen(ctx, c.ID))(t)
		styled := must.Get(k.ScreenWith(ctx, c.ID, chat.ScreenSpec{Styles: true}))(t)
		if !strings.Contains(plain.Text, "a link red end") {
			must.True(t, !time.Now().After(deadline), "the screen is %q", plain.Text)
			continue
		}
		expect.True(t, !strings.Contains(plain.Text, "\x1b"),
			"the plain screen has sequences: %q", plain.Text)
		sgr := regexp.MustCompile(`\x1b\[[0-9;:]*m`)
		rest := sgr.ReplaceAllString(styled.Text, "")
		if !regexp.MustCompile(`\x1b\[[0-9;]*31[0-9;]*mred\x1b\[`).MatchString(styled.Text) || strings.Contains(rest, "\x1b") || !strings.Contains(rest, "a link red end") {
			t.Errorf("the styled screen is %q", styled.Text)
		}
		break
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	expect.Is(t, expect.Err(m.ScreenWith(ctx, c.ID, chat.ScreenSpec{Styles: true})), chat.ErrWrongPhase,
		"asleep")
}
