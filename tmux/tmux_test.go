package tmux

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKnownKey(t *testing.T) {
	for name, want := range map[string]bool{
		"C-c": true, "Up": true, "F1": true, "F12": true, "M-x": true, "C-M-Left": true, "Enter": true,
		"a": true, ";": true, "-": true, "C-;": true, "S-Tab": true, "C--": true,
		"": false, "F0": false, "F13": false, "F01": false, "C-": false, "C-C-c": false, "up": false,
		"kill-server": false, "Up;": false, "é": false, " ": false, "\n": false, "X-a": false, "-l": false, "C-\n": false,
	} {
		if got := KnownKey(name); got != want {
			t.Errorf("KnownKey(%q) = %v, want %v", name, got, want)
		}
	}
}

func FuzzKnownKey(f *testing.F) {
	for _, s := range []string{"C-c", "F1", "Up", "C-;", "M-C-S-a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if KnownKey(s) && (len(s) > 16 || strings.ContainsAny(s, " \n\x00'\"")) {
			t.Errorf("KnownKey(%q) lets through what is no key name", s)
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
	writeFile(t, conf, Config(shell))
	argv := StartArgv(sock, conf, shell)
	client := exec.Command(argv[0], argv[1:]...)
	client.Dir = dir
	client.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TERM=screen", "LANG=C.UTF-8", "PS1=$ "}
	if out, err := client.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", sock, "kill-server").Run() })
	return New(sock, local)
}

func waitScreen(t *testing.T, term *Terminal, want string) Screen {
	t.Helper()
	var last string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		s, err := term.Screen(t.Context())
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
	if s.Rows != Rows || s.Cols != Cols {
		t.Errorf("size %dx%d, want %dx%d", s.Cols, s.Rows, Cols, Rows)
	}
	for _, text := range []string{
		"echo one; echo -l '#{pid}' -- ; kill-server",
		"-t =other: hi",
		"echo $((40+2)) é 😀",
	} {
		if err := term.Type(ctx, text, true); err != nil {
			t.Fatalf("Type(%q): %v", text, err)
		}
		waitScreen(t, term, text)
	}
	waitScreen(t, term, "42 é 😀")
	if err := term.Type(ctx, "cat", true); err != nil {
		t.Fatal(err)
	}
	if err := term.Press(ctx, []string{"a", ";", "Enter"}); err != nil {
		t.Fatal(err)
	}
	waitScreen(t, term, "a;\na;")
	if err := term.Press(ctx, []string{"C-c"}); err != nil {
		t.Fatal(err)
	}
	// Not ^C alone: until the shell reads again, the terminal keeps no more than
	// 4095 bytes of a line (termios(3), canonical mode).
	waitScreen(t, term, "^C\n$")
	if err := term.Press(ctx, []string{"a", "kill-server"}); !errors.Is(err, ErrKey) {
		t.Errorf("an unknown key gave %v, want ErrKey", err)
	}
	big := strings.Repeat("x", 200_000)
	if err := term.Type(ctx, "echo "+big+" | wc -c", true); err != nil {
		t.Fatal(err)
	}
	waitScreen(t, term, "200001")
	if err := term.Type(ctx, "exit", true); err != nil {
		t.Fatal(err)
	}
	var err error
	for deadline := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		_, err = term.Screen(ctx)
	}
	if err == nil {
		t.Error("the server lives on after its last shell ended")
	}
}

func TestParseScreenRefusesNoise(t *testing.T) {
	for _, out := range []string{"", "x", "1 2 3", "no server running"} {
		if _, err := parseScreen([]byte(out)); err == nil {
			t.Errorf("parseScreen(%q) gave no error", out)
		}
	}
}
