package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config/configfile"
)

// TestFirstLine: Ctrl-C is an answer to a question that nobody answers, and is not a yes.
func TestFirstLine(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	interrupt()
	if line := firstLine(ctx, r); line != "" {
		t.Errorf("Ctrl-C is %q", line)
	}
	for in, want := range map[string]string{"Y\n": "y", " yes \nno\n": "yes", "": "", "y": "y", "\n": ""} {
		if line := firstLine(t.Context(), strings.NewReader(in)); line != want {
			t.Errorf("%q is %q", in, line)
		}
	}
}

// TestDetaching: keys go on up to Ctrl-\, which lets go; who may only look sends none.
func TestDetaching(t *testing.T) {
	for _, silent := range []bool{false, true} {
		ended := false
		d := &detaching{in: strings.NewReader("ls\x03\x1cmore"), silent: silent, end: func() { ended = true }}
		got, err := io.ReadAll(d)
		want := "ls\x03"
		if silent {
			want = ""
		}
		if err != nil || string(got) != want || !ended || !d.left.Load() {
			t.Errorf("silent %v: %q, %v, let go: %v", silent, got, err, ended)
		}
	}
}

// wall raises what the config names and says so; what fails is the exit code.
func TestWall(t *testing.T) {
	old := askRoot
	t.Cleanup(func() { askRoot = old })
	for _, c := range []struct {
		name, args string
		err        error
		code       int
		out        string
	}{
		{"people", "", nil, 0, "uids 1879048192-1895825407 are walled\n"},
		{"programs", "--json", nil, 0, `"uids": "1879048192-1895825407"`},
		{"no iptables", "", fmt.Errorf("cannot find iptables: %w", chat.ErrUnsupported), 69, "cannot find iptables"},
		{"no root", "", fmt.Errorf("cannot raise the wall: %w", chat.ErrDenied), 3, "cannot raise the wall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked configfile.Flags
			askRoot = func(_ context.Context, _ string, f configfile.Flags, _ ...string) ([]byte, error) {
				asked = f
				return []byte(`"1879048192-1895825407"`), c.err
			}
			var out strings.Builder
			args := append([]string{"chatd", "wall", "--config", "testdata/empty.yaml"}, strings.Fields(c.args)...)
			if code := mainWith(t.Context(), args, strings.NewReader(""), &out, &out); code != c.code || !strings.Contains(out.String(), c.out) {
				t.Errorf("code %d, want %d: %s", code, c.code, out.String())
			}
			if asked.File != "testdata/empty.yaml" {
				t.Errorf("raised for %+v", asked)
			}
		})
	}
}

// TestEgressNewer: following prints each event once, whatever entry counts it.
func TestEgressNewer(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 10, 0, time.UTC)
	entry := func(host string, from, until time.Duration, n int64) chat.EgressEvent {
		return chat.EgressEvent{Time: at.Add(from), Until: at.Add(until), Count: n, Sent: 10 * n,
			Received: n, EgressKind: chat.EgressKind{Verdict: chat.EgressAllowed, Host: host}}
	}
	var seen egressSeen
	for i, tt := range []struct {
		entries []chat.EgressEvent
		want    string // host count sent received second
	}{
		{nil, ""},
		{[]chat.EgressEvent{entry("a", 0, 0, 2)}, "a 2 20 2 10; "},
		{[]chat.EgressEvent{entry("a", 0, 0, 2)}, ""},
		{[]chat.EgressEvent{entry("a", 0, 3*time.Second, 5), entry("b", 0, 0, 1)},
			"a 3 30 3 13; b 1 10 1 10; "},
		// an entry that began earlier than was known is the same
		{[]chat.EgressEvent{entry("a", -time.Second, 4*time.Second, 6)}, "a 1 10 1 14; "},
		{[]chat.EgressEvent{entry("a", -time.Second, 4*time.Second, 6),
			entry("a", time.Minute, time.Minute, 6)}, "a 6 60 6 10; "},
		{[]chat.EgressEvent{entry("a", 0, 5*time.Second, 1)}, "a 1 10 1 10; "}, // of a new chatd-root
	} {
		got := ""
		for _, e := range seen.newer(tt.entries) {
			got += fmt.Sprintln(e.Host, e.Count, e.Sent, e.Received, e.Time.Second())
			got = got[:len(got)-1] + "; "
		}
		if got != tt.want {
			t.Errorf("%d: %q, want %q", i, got, tt.want)
		}
	}
}

// TestOpenNewer: following prints each connection once, when it is first seen open.
func TestOpenNewer(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 10, 0, time.UTC)
	conn := func(host string, since, sent int) chat.EgressConnection {
		return chat.EgressConnection{Since: at.Add(time.Duration(since)), Host: host, Port: 443,
			Sent: int64(sent)}
	}
	var seen openSeen
	for i, tt := range []struct {
		open []chat.EgressConnection
		want string
	}{
		{nil, "[]"},
		{[]chat.EgressConnection{conn("a", 0, 0)}, "[a:443]"},
		{[]chat.EgressConnection{conn("a", 0, 7), conn("a", 1, 0), conn("b", 0, 0)}, "[a:443 b:443]"},
		{[]chat.EgressConnection{conn("a", 1, 9)}, "[]"},
		{[]chat.EgressConnection{conn("a", 2, 0)}, "[a:443]"},
	} {
		got := []string{}
		for _, c := range seen.newer(tt.open) {
			got = append(got, c.To())
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%d: %v, want %s", i, got, tt.want)
		}
	}
}

// TestHelpText: each command has a page of help.txt, and each page a command.
func TestHelpText(t *testing.T) {
	commands := newApp().Commands
	for _, c := range commands {
		if c.Usage == "" {
			t.Errorf("%s has no page", c.Name)
		}
	}
	for line := range strings.Lines(helpText) {
		name, isHead := strings.CutPrefix(strings.TrimSpace(line), "# ")
		name, _, _ = strings.Cut(name, " ")
		if isHead && !slices.ContainsFunc(commands, func(c *cli.Command) bool { return c.Name == name }) {
			t.Errorf("%s has a page, and is no command", name)
		}
	}
}
