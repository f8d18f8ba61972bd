package tmux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestKeyName(t *testing.T) {
	for name, want := range map[string]string{
		"enter": "Enter", "return": "Enter", "tab": "Tab", "esc": "Escape", "backspace": "BSpace", "delete": "DC", "up": "Up",
		"pgdn": "PgDn", "pageup": "PgUp", "f1": "F1", "f12": "F12", "ctrl-x": "C-x", "alt-x": "M-x", "shift-tab": "S-Tab",
		"ctrl-alt-left": "C-M-Left", "C-up": "C-Up", "ctrl-;": "C-;", "ctrl--": "C--", "C-c": "C-c", "Up": "Up", "x": "x",
		"F1": "F1", "F12": "F12", "M-x": "M-x", "C-M-Left": "C-M-Left", "Enter": "Enter",
		";": ";", "-": "-", "C-;": "C-;", "S-Tab": "S-Tab", "C--": "C--",
	} {
		got, known := KeyName(name)
		expect.True(t, got == want && known, "KeyName(%q) = %q, %v, want %q", name, got, known, want)
	}
	for _, name := range []string{"", "ctrl-", "ctrl-C-c", "ctrl-ctrl-c", "f0", "f13", "f01", "Ctrl-c", "kill-server", "up;", "-l", "ctrl-é", "alt-\n",
		"F0", "F13", "F01", "C-", "C-C-c", "Up;", "é", " ", "\n", "X-a", "C-\n"} {
		key, known := KeyName(name)
		expect.True(t, !known, "KeyName(%q) is %q", name, key)
	}
}

func FuzzKeyName(f *testing.F) {
	for _, s := range []string{"C-c", "F1", "Up", "C-;", "M-C-S-a", "ctrl-alt-f1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, known := KeyName(s); known && (len(key) > 16 || strings.ContainsAny(key, " \n\x00'\"")) {
			t.Errorf("KeyName(%q) lets through what is no key name: %q", s, key)
		}
	})
}

// local runs clients against a server on this machine, which is all that tmux
// itself needs; entering a session is provision's part.
func local(ctx context.Context, stdin []byte, argv []string) ([]byte, error) {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdin = strings.NewReader(string(stdin))
	var errOut strings.Builder
	c.Stderr = &errOut
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot run tmux: %w: %s", err, errOut.String())
	}
	return out, nil
}

func start(t *testing.T, shell ...string) *Terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux: apt-get install tmux")
	}
	dir := t.TempDir()
	conf, sock := filepath.Join(dir, "conf"), filepath.Join(dir, "s")
	writeFile(t, conf, Config(shell, ""))
	argv := StartArgv(sock, conf, shell)
	client := exec.Command(argv[0], argv[1:]...)
	client.Dir = dir
	client.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TERM=screen", "LANG=C.UTF-8", "PS1=$ "}
	must.Run(t, client)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", sock, "kill-server").Run() })
	return New(sock, local)
}

func waitScreen(t *testing.T, term *Terminal, want string) Screen {
	t.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		s, err := term.Screen(t.Context(), Plain, 0)
		if err == nil && strings.Contains(s.Text, want) {
			return s
		}
		last = fmt.Sprint(s.Text, err)
	}
	t.Fatalf("the screen never showed %q; last: %s", want, last)
	return Screen{}
}

func TestTerminal(t *testing.T) {
	term := start(t, "bash", "--norc", "--noprofile", "-i")
	ctx := t.Context()
	s := waitScreen(t, term, "$")
	expect.True(t, s.Rows == Rows && s.Cols == Cols,
		"size %dx%d, want %dx%d", s.Cols, s.Rows, Cols, Rows)
	for _, text := range []string{
		"echo one; echo -l '#{pid}' -- ; kill-server",
		"-t =other: hi",
		"echo $((40+2)) é 😀",
	} {
		if _, err := term.Type(ctx, text, true, If{}); err != nil {
			t.Fatalf("Type(%q): %v", text, err)
		}
		waitScreen(t, term, text)
	}
	waitScreen(t, term, "42 é 😀")
	must.Get(term.Type(ctx, "echo r''eady; cat", true, If{}))(t)
	waitScreen(t, term, "\nready") // the shell has given the terminal back its modes
	must.Get(term.Press(ctx, "", []string{"a", ";", "Enter"}, If{}))(t)
	waitScreen(t, term, "a;\na;")
	must.Get(term.Press(ctx, "", []string{"C-c"}, If{}))(t)
	// Not ^C alone: until the shell reads again, the terminal keeps no more than
	// 4095 bytes of a line (termios(3), canonical mode).
	waitScreen(t, term, "^C\n$")
	expect.Is(t, expect.Err(term.Press(ctx, "", []string{"a", "kill-server"}, If{})), ErrKey,
		"an unknown key gave")
	big := strings.Repeat("x", 200_000)
	must.Get(term.Type(ctx, "echo "+big+" | wc -c", true, If{}))(t)
	waitScreen(t, term, "200001")
	must.Get(term.Type(ctx, "exit", true, If{}))(t)
	var err error
	for deadline := time.Now().Add(2 * time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_, err = term.Screen(ctx, Plain, 0)
	}
	expect.True(t, err != nil, "the server lives on after its last shell ended")
}

// TestPrinted: a line that the terminal wraps is one line, and blanks within it stay.
func TestPrinted(t *testing.T) {
	const wide = Cols + 20
	line := strings.Repeat("x", Cols-3) + "   " + strings.Repeat("y", wide-Cols)
	term := start(t, "sh", "-c", "printf '%s\\n' '"+line+"' 'ready  '; exec cat")
	s := waitScreen(t, term, "ready")
	expect.True(t, !strings.Contains(s.Text, line), "the screen does not wrap: %q", s.Text)
	p, err := term.Screen(t.Context(), Printed, 0)
	expect.True(t, err == nil && p.Text == line+"\nready", "printed is %q, %v", p.Text, err)
}

// TestHostileText types what tmux, a shell or a terminal could take for something else, to a
// program that prints the bytes that it gets, with and without bracketed paste.
func TestHostileText(t *testing.T) {
	dir := t.TempDir()
	for _, bracketed := range []bool{false, true} {
		ask := ""
		if bracketed {
			ask = `printf '\033[?2004h'; `
		}
		got := filepath.Join(dir, fmt.Sprint(bracketed))
		term := start(t, "sh", "-c", ask+"stty raw -echo; echo ready; exec cat >"+got)
		waitScreen(t, term, "ready")
		var want string
		for _, text := range []string{
			"; kill-server", "-t", "-t x", "--", ";", "\\;", "#{pid} #(touch pwned) #[fg=red]", "%1", "$HOME `id` $(id)", "C-c", "Enter", "\x1b", "\x1b[201~", "\x03\x04\x1a\x11\x13",
			"\t\b\x7f", "é😀\xff\xfe\xc3", "\"'\\", "a\nb\rc", strings.Repeat("y", 300_000),
		} {
			_, err := term.Type(t.Context(), text, false, If{})
			must.True(t, err == nil, "Type(%q): %v", text, err)
			text = strings.ReplaceAll(Typeable(text), "\n", "\r") // as Enter does
			if bracketed && text != "" {
				text = "\x1b[200~" + text + "\x1b[201~"
			}
			want += text
		}
		var b []byte
		for deadline := time.Now().Add(2 * time.Minute); len(b) < len(want) && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			b, _ = os.ReadFile(got) // not there yet
		}
		if string(b) != want {
			i := 0
			for i < min(len(b), len(want)) && b[i] == want[i] {
				i++
			}
			t.Errorf("bracketed %v: %d bytes came, want %d; from byte %d on %.60q, want %.60q", bracketed, len(b), len(want), i, b[i:], want[i:])
		}
	}
}

func TestParseScreenRefusesNoise(t *testing.T) {
	for _, out := range []string{"", "x", "1 2 3", "no server running"} {
		expect.True(t, expect.Err(parseScreen([]byte(out))) != nil, "parseScreen(%q) gave no error", out)
	}
}

// attachFrom attaches a client on a terminal of that size, and returns what detaches it.
func attachFrom(t *testing.T, term *Terminal, readOnly bool, rows, cols int) (leave func()) {
	t.Helper()
	var words []string
	for _, w := range AttachArgv(term.socket, readOnly) {
		words = append(words, quote(w))
	}
	line := fmt.Sprintf("stty rows %d cols %d; TERM=xterm exec %s", rows, cols, strings.Join(words, " "))
	cmd := exec.Command("script", "-qec", line, "/dev/null")
	stdin := must.Get(cmd.StdinPipe())(t)
	before := clients(t, term)
	must.Do(t, cmd.Start())
	leave = func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(leave)
	for deadline := time.Now().Add(2 * time.Minute); clients(t, term) == before; time.Sleep(20 * time.Millisecond) {
		must.True(t, !time.Now().After(deadline), "the client did not attach")
	}
	return leave
}

func clients(t *testing.T, term *Terminal) int {
	t.Helper()
	out := must.Get(term.client(t.Context(), nil, []string{"list-clients"}))(t)
	return strings.Count(string(out), "\n")
}

// TestAttachLeavesTheSize: no client changes the size of what it looks at, whether it types or only
// reads, alone or beside others, in the first window or a later one.
func TestAttachLeavesTheSize(t *testing.T) {
	term := start(t, "sh", "-c", "echo ready; exec cat")
	waitScreen(t, term, "ready")
	has := func(when string, rows, cols, count int) {
		t.Helper()
		var s Screen
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			var err error
			if s, err = term.Screen(t.Context(), Plain, 0); err != nil {
				t.Fatal(err)
			}
			if s.Rows == rows && s.Cols == cols && clients(t, term) == count {
				return
			}
		}
		t.Errorf("%s: %dx%d, want %dx%d", when, s.Rows, s.Cols, rows, cols)
	}
	for _, readOnly := range []bool{true, false} {
		for _, size := range [][2]int{{5, 10}, {10, 40}, {1, 1}, {100, 300}} {
			leave := attachFrom(t, term, readOnly, size[0], size[1])
			has("while one is there", Rows, Cols, 1)
			other := attachFrom(t, term, !readOnly, 7, 33)
			has("while two are there", Rows, Cols, 2)
			leave()
			other()
			has("none is there", Rows, Cols, 0)
		}
	}
	must.Get(term.client(t.Context(), nil, []string{"new-window", "-t", target, "sleep 600"}))(t)
	attachFrom(t, term, false, 5, 10)
	has("in a second window", Rows, Cols, 1)
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(name, content, 0o600))
}
