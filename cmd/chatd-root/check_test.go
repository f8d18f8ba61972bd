package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck: check looks at the host for what a config opens, names the line, and needs no root.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, text, flag, out, errs string
		code                        int
	}{
		{"ok.yaml", "expose_paths: [{source: /usr/share, target: ~/x, mode: ro}]\n", "--config=",
			"", "", 0},
		{"gone.yaml", "expose_paths:\n  - {source: /none/such, mode: ro}\n", "--config=",
			"", "gone.yaml:2: expose_paths[0].source: cannot reach", 2},
		{"names.yaml", "operators_group: nosuchgroup\nuser: root\nbridge_group: root\n", "--config=",
			"", `names.yaml:1: operators_group: "nosuchgroup": this host has no such group`, 2},
		{"absent.yaml", "", "--config=", "", "cannot read the config", 2},
		{"rules.yaml", "access: {deny: [/x]}\n", "--policy=", "[]\n", "", 0},
		{"bad.yaml", "access:\n  mod: x\n", "--policy=", "", "bad.yaml:2: access: unknown key", 2},
	} {
		file := filepath.Join(dir, c.name)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out, errs strings.Builder
		code := run(t.Context(), []string{"check", "--front=" + compilerOf(t, "").program, c.flag + file}, &out, &errs)
		if code != c.code || out.String() != c.out ||
			!strings.Contains(errs.String(), c.errs) || (c.errs == "") != (errs.Len() == 0) {
			t.Errorf("%s: code %d, %q, %q", c.name, code, out.String(), errs.String())
		}
	}
}

// TestServeChecks: a daemon does not start with a config that check refuses, and says the line.
func TestServeChecks(t *testing.T) {
	// Without the check it would fail at its state directory, before it makes anything.
	cfg, err := load(t, "expose_paths:\n  - {source: /none/such, mode: ro}\n"+
		"state: /proc/none/state\nrun: /proc/none/run\n")
	if err != nil {
		t.Fatal(err)
	}
	err = serve(t.Context(), cfg, arguments{front: "/none"}, nil)
	if err == nil || !strings.Contains(err.Error(), "chatd.yaml:2: expose_paths[0].source") {
		t.Errorf("serve: %v", err)
	}
}
