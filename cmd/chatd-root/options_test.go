package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/journal"
	"github.com/chatd/chatd/test/must"
)

func load(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return compilerOf(t, file).config(t.Context())
}

// The daemon runs with the values of the config.
func TestProvisionOptions(t *testing.T) {
	cfg, err := load(t, "backend: cgroupfs\naudit_max: 1MiB\naudit_keep: 5\nmax_awake: 9\nfile_max: 8MiB\ncgroup: mine\naccount: useradd\nuids: 3000000-4000000\nlandlock_min_abi: 3\nshim: /p/shim\nenforce: /p/enforce\nallow_missing: [cpu]\n")
	if err != nil {
		t.Fatal(err)
	}
	opt := must.Get(provisionOptions(t.Context(), cfg, compilerOf(t, "")))(t)
	for what, same := range map[string]bool{
		"backend": opt.Backend == "cgroupfs", "audit_max": opt.AuditMax == 1<<20, "audit_keep": opt.AuditKeep == 5,
		"max_awake": opt.MaxAwake == 9, "file_max": opt.FileMax == 8<<20, "cgroup": opt.Cgroup == "mine", "account": opt.Account == "useradd",
		"uids": opt.UIDs.Low == 3000000 && opt.UIDs.High == 4000000, "landlock_min_abi": opt.LandlockABI == 3,
		"shim": opt.Shim == "/p/shim", "enforce": opt.Enforce == "/p/enforce",
		"allow_missing": len(opt.AllowMissing) == 1, "profiles": len(opt.Profiles) == 3, "userdb": opt.Userdb == "/etc/userdb",
		"state": opt.State == "/var/lib/chatd", "run": opt.Run == "/run/chatd", "homes": opt.Homes == "/srv/chatd/homes",
	} {
		if !same {
			t.Errorf("%s does not arrive: %+v", what, opt)
		}
	}
}

// TestLogLevel: log_level says the least that is logged, a config that is read again changes it,
// here and in the front, and a word that is none changes nothing.
func TestLogLevel(t *testing.T) {
	t.Cleanup(func() {
		if err := journal.SetLevel("info"); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "stderr")
	f := must.Get(os.Create(file))(t)
	defer f.Close()
	log := journal.New(f)
	cfg := filepath.Join(t.TempDir(), "chatd.yaml")
	write := func(text string) {
		must.Do(t, os.WriteFile(cfg, []byte(text), 0o600))
	}
	write("log_level: warn\n")
	was := must.Get(compilerOf(t, cfg).config(t.Context()))(t)
	if _, err := provisionOptions(t.Context(), was, compilerOf(t, cfg)); err != nil {
		t.Fatal(err)
	}
	log.Info("too little")
	log.Warn("enough")
	write("log_level: debug\n")
	level := ""
	if _, _, err := readAgain(t.Context(), log, was, compilerOf(t, cfg),
		func(now config.Config) error { level = now.LogLevel; return nil }); err != nil {
		t.Fatal(err)
	}
	log.Debug("now shown")
	b, err := os.ReadFile(file)
	if err != nil || bytes.Contains(b, []byte("too little")) || !bytes.Contains(b, []byte("enough")) || !bytes.Contains(b, []byte("now shown")) || level != "debug" {
		t.Errorf("the front was told %q, and the log is %s, %v", level, b, err)
	}
	if _, err := load(t, "log_level: loud\n"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("want one of debug, info, warn, error")) {
		t.Errorf("log_level loud: %v", err)
	}
}

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
			must.Do(t, os.WriteFile(file, []byte(c.text), 0o600))
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
