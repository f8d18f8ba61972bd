package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: "wraps"})
	must.Do(t, err)
	wait := chat.Wait{Until: chat.UntilScreen, Pattern: "^x{115}a long word$"}
	if got := answered(t, m, c.ID, "printf '%0115d' 0 | tr 0 x; echo a long word; sleep 1000", wait); got.Until != chat.UntilScreen {
		t.Errorf("the wait ended by %s: %q", got.Until, got.Plain)
	}
}

// scripts are words whose characters a renderer must not lose: marks, joiners, selectors.
const scripts = "हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3 👩\u200d💻 שָׁלוֹם Tiê\u0301ng ک\u200cت 漢字 か\u3099"

// TestPlainIsWhatWasPrinted: the scripts of the world, and lines over the width of the terminal, come
// out of plain as they were printed.
func TestPlainIsWhatWasPrinted(t *testing.T) {
	needsRoot(t)
	d := startDaemon(t, options(t), "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "prints scripts"})
	must.Do(t, err)
	long := strings.Repeat("wide 漢 ", 60) + "END"
	text := scripts + "\n" + long + "\nlast"
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "text"), []byte(text+"\n"), 0o644))
	typed := must.Get(d.InputWait(t.Context(), c.ID, chat.Input{Text: "cat text", Enter: true,
		Wait: &chat.Wait{Until: chat.UntilPrompt}}))(t)
	expect.Equal(t, strings.TrimSuffix(typed.Plain, "\n"), text, "plain")
	must.Do(t, d.Reap(t.Context(), c.ID))
}
