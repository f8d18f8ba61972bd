package roottest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/tmux"
)

// texts are what people and programs write, by what is special about each.
var texts = []struct{ name, text string }{
	{"Devanagari", "हिन्दी में क्ष, त्र, श्री\n"},
	{"Tamil", "தமிழ் கொடு\n"},
	{"Thai", "ที่นี่ น้ำ\n"},
	{"Arabic", "السَّلَامُ عَلَيْكُم ١٢٣ \u200fabc\u200f\n"},
	{"Persian", "می\u200cخواهم\n"},
	{"Hebrew", "שָׁלוֹם \u200eabc\u200e\n"},
	{"Vietnamese", "Tie\u0302\u0301ng Vie\u0323\u0302t, Tiếng Việt\n"},
	{"Japanese", "漢字 か\u3099 ｶﾞ 葛\U000e0100\n"},
	{"Korean", "한글 \u1112\u1161\u11ab\n"},
	{"emoji", "👩\u200d💻 👍🏽 1\ufe0f\u20e3 ❤\ufe0f 🇨🇭 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\n"},
	{"signs", "soft\u00adhyphen word\u2060joiner zero\u200bwidth no\u00a0break\ufeff\n"},
	{"tabs", "a\tb\t\tc\n"},
	{"blanks at the end", "a   \nb\n\n\nc\n"},
	{"no end", "the last line ends by itself"},
	{"CRLF", "one\r\ntwo\r\n"},
	{"CR", "one\rtwo\r"},
	{"paste marks", "a\x1b[201~b\x1b[200~c\n"},
	{"controls", "bell\a back\b esc\x1b[31mred\x1b[0m nul\x00 del\x7f c1\u009b0m\n"},
	{"no UTF-8", "latin \xe9\xff\xc3 end\n"},
	{"5 characters", "12345\n"},
	{"121 characters", strings.Repeat("x", 121) + "\n"},
	{"4095 bytes", strings.Repeat("y", 4095) + "\n"},
	{"4097 bytes", strings.Repeat("z", 4097) + "\n"},
	{"100000 characters", strings.Repeat("wide 漢 ", 100000/7) + "\n"},
	{"1 MB", strings.Repeat("a line of text, and वह भी\n", 1<<20/40)},
}

// textWays are the ways of texts in and out of one chat.
type textWays struct {
	*daemon
	id     chat.ID
	socket string
}

// in are the ways in: each brings text into the file f. A way that changes a text says how.
func (w textWays) in(t *testing.T) map[string]func(text string) (want string) {
	ctx := t.Context()
	inline := func(call func(text string) error) func(string) string {
		return func(text string) string { // JSON has no bytes
			if utf8.ValidString(text) {
				must.Do(t, call(text))
				return text
			}
			return ""
		}
	}
	return map[string]func(string) string{
		"write_file": inline(func(text string) error {
			_, err := w.WriteFile(ctx, w.id, filewire.WriteFile{Path: "f", Content: &text}, nil)
			return err
		}),
		"write_file as a stream": func(text string) string {
			_, err := w.WriteFile(ctx, w.id, filewire.WriteFile{Path: "f", Stream: true}, strings.NewReader(text))
			must.Do(t, err)
			return text
		},
		"MCP write_file": inline(func(text string) error {
			if a := callTool(t, w, w.id, "write_file", map[string]any{"path": "f", "content": text}); a.IsError {
				return errors.New(a.Content[0].Text)
			}
			return nil
		}),
		"stdin": inline(func(text string) error {
			_, err := w.Run(ctx, w.id, chat.RunSpec{Command: "cat > f", Stdin: text})
			return err
		}),
		"stdin as a stream": func(text string) string {
			r := must.Get(w.StartRun(ctx, w.id, chat.RunSpec{Command: "cat > f", OpenStdin: true}))(t)
			must.Do(t, w.WriteStdin(ctx, w.id, r.ID, io.NopCloser(strings.NewReader(text)), true))
			must.Get(w.FollowRun(ctx, w.id, r.ID, "", func(chat.Frame) {}))(t)
			return text
		},
		"input": func(text string) string { return w.typed(t, text) },
	}
}

// typed types text into a program that takes each key, as an editor does: line ends of every system
// are Enter, and controls are left out.
func (w textWays) typed(t *testing.T, text string) (want string) {
	ctx := t.Context()
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		expect.Is(t, w.Input(ctx, w.id, chat.Input{Text: text}), chat.ErrInvalid,
			"bytes that are no text are typed")
		return ""
	}
	want = strings.ReplaceAll(tmux.Typeable(text), "\n", "\r")
	reads := fmt.Sprintf("clear; stty raw -echo; echo rea''dy; head -c %d > f; stty sane; echo", len(want))
	must.Get(w.InputWait(ctx, w.id, chat.Input{Text: reads, Enter: true,
		Wait: &chat.Wait{Until: chat.UntilScreen, Pattern: "^ready"}}))(t)
	must.Get(w.InputWait(ctx, w.id, chat.Input{Text: text, Wait: &chat.Wait{Until: chat.UntilPrompt}}))(t)
	return want
}

// out are the ways out: each returns the content of the file f, or "" with what it says of it.
func (w textWays) out(t *testing.T) map[string]func() (got string, says bool) {
	ctx := t.Context()
	read := func(spec filewire.ReadFile) string {
		var b bytes.Buffer
		must.Get(w.ReadFile(ctx, w.id, spec, func(filewire.Answer) io.Writer { return &b }))(t)
		return b.String()
	}
	return map[string]func() (string, bool){
		"read_file as a stream": func() (string, bool) { return read(filewire.ReadFile{Path: "f", Stream: true}), false },
		"run": func() (string, bool) {
			r := must.Get(w.Run(ctx, w.id, chat.RunSpec{Command: "cat f", OutputMax: 4 << 20}))(t)
			return r.Stdout, r.StdoutReplaced > 0
		},
		"streamed run": func() (string, bool) {
			var b bytes.Buffer
			_, err := w.RunTo(ctx, w.id, chat.RunSpec{Command: "cat f"}, func(_ string, p []byte) { b.Write(p) })
			must.Do(t, err)
			return b.String(), false
		},
		"background run": func() (string, bool) {
			var b bytes.Buffer
			r := must.Get(w.StartRun(ctx, w.id, chat.RunSpec{Command: "cat f", OutputMax: 4 << 20}))(t)
			must.Get(w.FollowRun(ctx, w.id, r.ID, "", func(f chat.Frame) {
				b.WriteString(f.Text)
				b.Write(f.Base64)
			}))(t)
			return b.String(), false
		},
		"MCP read_file": func() (string, bool) {
			a := callTool(t, w, w.id, "read_file", map[string]any{"path": "f"})
			content, _ := a.StructuredContent["content"].(string)
			if a.StructuredContent["encoding"] == "base64" {
				content = string(must.Get(base64.StdEncoding.DecodeString(content))(t))
			}
			return content, a.StructuredContent["truncated"] == true || a.IsError
		},
		"MCP exec": func() (string, bool) {
			a := callTool(t, w, w.id, "exec", map[string]any{"command": "cat f"})
			out, _ := a.StructuredContent["stdout"].(string)
			return out, a.StructuredContent["stdout_replaced"] != nil || strings.Contains(out, "[chatd left")
		},
		"chatd run":        func() (string, bool) { return w.chatd(t, "run", string(w.id), "--", "cat", "f"), false },
		"chatd files read": func() (string, bool) { return w.chatd(t, "files", "read", string(w.id), "f"), false },
	}
}

// atTerminal is what cat f prints on the terminal, by the ways that show it.
func (w textWays) atTerminal(t *testing.T) (plain, log, screen string) {
	typed := must.Get(w.InputWait(t.Context(), w.id, chat.Input{Text: "clear; cat f; echo", Enter: true,
		Wait: &chat.Wait{Until: chat.UntilPrompt}}))(t)
	expect.Equal(t, typed.Until, chat.UntilPrompt, "cat ended the wait by")
	s := must.Get(w.Screen(t.Context(), w.id))(t)
	return typed.Plain, string(typed.Bytes()), s.Text
}

// chatd is what the command prints.
func (w textWays) chatd(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(programs.chatd, append([]string{"--socket", w.socket}, args...)...).Output()
	must.Do(t, err)
	return string(out)
}

// TestTexts sends each text through every way in and out of a chat. The same bytes come out, or the
// answer says that they are others: typed line ends are Enter, and controls are no keys.
func TestTexts(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "texts"}))(t)
	w := textWays{d, c.ID, filepath.Join(opt.Run, "chatd.sock")}
	for _, text := range texts {
		t.Run(text.name, func(t *testing.T) {
			for way, in := range w.in(t) {
				want := in(text.text)
				if want == "" {
					continue
				}
				if got, err := os.ReadFile(filepath.Join(c.Home, "f")); string(got) != want {
					t.Errorf("%s: %s", way, unlike(string(got), want, err))
				}
			}
			must.Do(t, os.WriteFile(filepath.Join(c.Home, "f"), []byte(text.text), 0o644))
			for way, out := range w.out(t) {
				got, says := out()
				if says != (got != text.text) {
					t.Errorf("%s: %s, says so: %v", way, unlike(got, text.text, nil), says)
				}
			}
			w.shown(t, text.text)
		})
	}
}

// shown checks what the terminal shows of the file f: log has every byte, a line feed being CR LF;
// plain and screen have the characters of what is not a control, but not where a line ends in blanks.
func (w textWays) shown(t *testing.T, text string) {
	t.Helper()
	plain, log, screen := w.atTerminal(t)
	if utf8.ValidString(text) && len(text) < 64<<10 && !strings.Contains(log, strings.ReplaceAll(text, "\n", "\r\n")) {
		t.Errorf("log: %q", log)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || r < ' ' && r != '\n' || r == 0x7f || r == 0x9b }) {
		return // controls act
	}
	want := regexp.MustCompile(` +\n`).ReplaceAllString(text, "\n")
	want = strings.TrimRight(want, "\n")
	if got := strings.TrimRight(plain, "\n"); got != want && (len(want) < 256<<10 || !strings.HasSuffix(want, got[len(got)/2:])) {
		t.Errorf("plain: %s", unlike(got, want, nil))
	}
	if strings.Contains(want, "\n") || len(want) > 100 {
		return // the screen has lines of its own
	}
	want = strings.Replace(want, "\U000e0067\U000e007f", "", 1) // a cell of tmux 3.3a has 21 bytes
	expect.True(t, strings.Contains(screen, want), "screen: %q, want %q", screen, want)
}

// unlike says where two texts differ.
func unlike(got, want string, err error) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, want %d; from byte %d: %.60q, want %.60q (%v)", len(got), len(want), i, got[i:], want[i:], err)
}
