package tmux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// gets waits until the file has want, or a while.
func gets(t *testing.T, file, want string) {
	t.Helper()
	var b []byte
	for deadline := time.Now().Add(2 * time.Minute); len(b) < len(want) && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		b, _ = os.ReadFile(file) // not there yet
	}
	expect.True(t, string(b) == want, "%q came, want %q", b, want)
}

// TestEveryKey presses each character, and types some as keys: no one is read by tmux.
func TestEveryKey(t *testing.T) {
	got := filepath.Join(t.TempDir(), "got")
	term := start(t, "sh", "-c", "stty raw -echo; echo ready; exec cat >"+got)
	waitScreen(t, term, "ready")
	var keys []string
	var want strings.Builder
	for b := byte('!'); b <= '~'; b++ {
		keys = append(keys, string(b))
		want.WriteByte(b)
	}
	for _, part := range [][]string{keys[:50], keys[50:]} {
		f, err := term.Press(t.Context(), "", part, If{})
		must.True(t, err == nil && f.Done == len(part), "%+v, %v", f, err)
	}
	text := "é😀 '#{pid}'\n"
	must.Get(term.TypeKeys(t.Context(), text, If{}))(t)
	gets(t, got, want.String()+strings.ReplaceAll(text, "\n", "\r"))
}

// TestIf: where the condition does not hold, nothing at all arrives.
func TestIf(t *testing.T) {
	got := filepath.Join(t.TempDir(), "got")
	term := start(t, "sh", "-c", "stty raw -echo; echo ready; exec cat >"+got)
	waitScreen(t, term, "ready")
	yes, no := true, false
	all := ""
	for _, c := range []struct {
		cond If
		met  bool
	}{
		{If{}, true}, {If{Program: "cat"}, true}, {If{Shell: &no}, true}, {If{Program: "cat", Shell: &no}, true},
		{If{Program: "ca"}, false}, {If{Program: "bash"}, false}, {If{Shell: &yes}, false}, {If{Program: "cat", Shell: &yes}, false},
	} {
		for how, do := range map[string]func() (Front, error){
			"text": func() (Front, error) { return term.Type(t.Context(), "t", true, c.cond) },
			"keys": func() (Front, error) { return term.Press(t.Context(), "", []string{"k", "enter"}, c.cond) },
			"each": func() (Front, error) { return term.TypeKeys(t.Context(), "e", c.cond) },
		} {
			f, err := do()
			if c.met != (err == nil) || !c.met && !errors.Is(err, ErrUnmet) || f.Program != "cat" || !validPane(f.Pane) || c.met != (f.Done > 0) {
				t.Errorf("%s, %+v: %+v, %v", how, c.cond, f, err)
			}
			if c.met {
				all += map[string]string{"text": "t\r", "keys": "k\r", "each": "e"}[how]
			}
			gets(t, got, all)
		}
	}
	out, err := term.client(t.Context(), nil, []string{"list-buffers"})
	expect.True(t, err == nil && len(out) == 0, "the buffers %q are left, %v", out, err)
}

// TestIfShell: the shell is told from what runs in it, and keys stop where the condition does.
func TestIfShell(t *testing.T) {
	term := start(t, "bash", "--norc", "--noprofile", "-i")
	waitScreen(t, term, "$")
	yes, no := true, false
	f, err := term.Type(t.Context(), "echo $((40+1))", true, If{Shell: &yes})
	expect.True(t, err == nil && f.Shell(), "at the prompt: %+v, %v", f, err)
	waitScreen(t, term, "\n41")
	f, err = term.Type(t.Context(), "echo $((40+3))", true, If{Shell: &no})
	expect.True(t, errors.Is(err, ErrUnmet) && f.Program == "bash", "while no shell is in front: %+v, %v", f, err)
	must.Get(term.Type(t.Context(), "exec cat", true, If{}))(t)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := term.Type(t.Context(), "here", true, If{Program: "cat"}); err == nil || time.Now().After(deadline) {
			break
		}
	}
	s := waitScreen(t, term, "here\nhere")
	expect.True(t, !strings.Contains(s.Text, "43"), "it was typed: %s", s.Text)
}

func TestValidProgram(t *testing.T) {
	for name, want := range map[string]bool{
		"claude": true, "pi": true, "python3.11": true, "x86_64-linux-gnu-g++": true,
		"": false, "a b": false, "#{pid}": false, "a,b": false, "a}": false, "é": false, "\n": false, "a:b": false, "@": false, "[": false,
		strings.Repeat("x", MaxProgram+1): false,
	} {
		expect.True(t, ValidProgram(name) == want, "ValidProgram(%q) = %v", name, !want)
	}
}

// TestConfig: the server has understood every line, also where its version lacks an option.
func TestConfig(t *testing.T) {
	term := start(t, "sh", "-c", "echo TERM=$TERM; exec cat")
	waitScreen(t, term, "TERM="+Term)
	for _, o := range []string{"extended-keys on", "focus-events on", "escape-time 0"} {
		out, err := term.client(t.Context(), nil, []string{"show-options", "-s", strings.Fields(o)[0]})
		expect.True(t, err == nil && strings.TrimSpace(string(out)) == o, "%q, %v, want %s", out, err, o)
	}
	out, err := term.client(t.Context(), nil, []string{"show-options", "-s", "terminal-features"})
	expect.True(t, err == nil && strings.Contains(string(out), "*:RGB"), "%q, %v", out, err)
}

func TestTypeable(t *testing.T) {
	for in, want := range map[string]string{
		"हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3 👩\u200d💻 \u200fعربي": "हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3 👩\u200d💻 \u200fعربي",
		"a\r\nb\rc\nd\te":                "a\nb\nc\nd\te",
		"echo a\x1b[201~\rtouch pwned\r": "echo a\ntouch pwned\n",
		"a\u009b201~b":                   "ab",
		"\x1b[20\x1b[201~1~":             "[201~",
		"\x1b\x1b[201~[201~":             "[201~",
		"\x1b[1;31mred\x1b[0m":           "red",
		"\x03\x04\x1a\x7f\x1b":           "",
		"\x1bOA\x1b]0;title\atext":       "OA]0;titletext",
		"\U000E0067 \ue0b0 \ufffd":       "\U000E0067 \ue0b0 \ufffd",
	} {
		expect.Equal(t, Typeable(in), want, "%q is typed as", in)
	}
}

// FuzzTypeable: whatever is in a text, no control character is left that begins a key or ends a
// paste, and a text without any is typed unchanged.
func FuzzTypeable(f *testing.F) {
	f.Add("a\x1b[20\x1b[201~1~\u009b\r")
	f.Add("plain\n\ttext")
	f.Fuzz(func(t *testing.T, text string) {
		got := Typeable(text)
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("%q is typed as %q", text, got)
			}
		}
		if !strings.ContainsFunc(text, unicode.IsControl) && got != strings.ToValidUTF8(text, "\ufffd") && got != text {
			t.Errorf("%q is typed as %q", text, got)
		}
	})
}
