package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestArguments: what cannot be used is said with its name and ends with chatd's exit code,
// before anything is made.
func TestArguments(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keeper")
	for _, c := range []struct {
		args     string
		code     int
		out, err string
	}{
		{"--help", 0, "usage: chatd-enforce [--dir DIRECTORY]", ""},
		{"-h", 0, "/run/chatd/keeper", ""},
		{"--version", 0, "chatd-enforce version dev\n", ""},
		{"--nonsense", 2, "", "chatd-enforce: cannot use the arguments: flag provided but not defined: -nonsense, see chatd-enforce --help"},
		{"--dir", 2, "", "cannot use the arguments: flag needs an argument: -dir"},
		{"--idle-end=perhaps", 2, "", "cannot use the arguments: invalid boolean value"},
		{"--dir " + dir + " keep", 2, "", `cannot keep file rules: unexpected argument "keep"`},
		{"--dir " + dir + " now", 2, "", `unexpected argument "now"`},
		{"--dir run/keeper", 2, "", `cannot keep file rules: --dir is "run/keeper", want an absolute path`},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(c.args), &out, &errs); code != c.code {
			t.Errorf("%s: exit %d, want %d", c.args, code, c.code)
		}
		if !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) || c.err == "" && errs.Len() > 0 {
			t.Errorf("%s: prints %q and says %q, want %q and %q", c.args, &out, &errs, c.out, c.err)
		}
	}
}

// TestUnwritableOutput: help that nobody gets is an error.
func TestUnwritableOutput(t *testing.T) {
	if code := run([]string{"--help"}, brokenWriter{}, &bytes.Buffer{}); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no room") }
