package provision

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
	"github.com/chatd/chatd/state"
)

// TestOnlyRootsProgramIsStarted: chatd starts no enforcer, supervisor or chatd-shim that anybody
// but root could have written. The error says what was expected, and nothing is made before.
func TestOnlyRootsProgramIsStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	for _, c := range []struct {
		mode fs.FileMode
		uid  int
		want string
	}{
		{0o755, 7, "uid 7, which owns it, may write to it"},
		{0o775, 0, "may write to it"},
		{0o757, 0, "everybody may write to it"},
		{0o644, 0, "want a file that may be executed"},
		{0o755, 0, ""},
	} {
		if os.Geteuid() != 0 {
			break // the rest of this test needs no root
		}
		if err := errors.Join(os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600), os.Chown(file, c.uid, 0), os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), "copy")
		for what, err := range map[string]error{"checked": checkProgram(file), "installed": installProgram(file, copied)} {
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: mode %v of uid %d: %v, want %q", what, c.mode, c.uid, err, c.want)
			}
		}
		if _, err := os.Stat(copied); (err == nil) != (c.want == "") {
			t.Errorf("mode %v of uid %d: the copy: %v", c.mode, c.uid, err)
		}
		if c.want == "" {
			continue
		}
		m := &Manager{paths: paths{shim: file}}
		if _, _, err := m.supervisorCommand(state.Record{}, &liveRun{}, &exec.Cmd{}, &runStdio{}, &boundFiles{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a supervisor: mode %v of uid %d: %v, want %q", c.mode, c.uid, err, c.want)
		}
	}
	if err := checkProgram("/bin/sh"); err != nil {
		t.Error(err)
	}
	for program, want := range map[string]string{
		filepath.Dir(file): "want a file that may be executed", file + "-none": "no such file", "": "no such file",
	} {
		m := &Manager{opt: Options{Run: filepath.Join(t.TempDir(), "run"), Enforce: program}}
		err := m.startKeeper(t.Context())
		if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is started: %v, want %q", program, err, want)
		}
		if _, err := os.Stat(m.opt.Run); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the run directory: %v, want none", program, err)
		}
	}
}

// TestInstallAgain: a copy that is as the program stays; one that another could write to, or with
// other content, is made anew.
func TestInstallAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
		}
		t.Skip("SKIPPED: needs root: the program must be root's")
	}
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	install := func() (kept bool) {
		fi, err := os.Stat(to)
		err = errors.Join(err, installProgram(from, to))
		now, nerr := os.Stat(to)
		if err := errors.Join(err, nerr); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(to); err != nil || string(b) != "program" || now.Mode() != 0o755 {
			t.Errorf("the copy is %q with mode %v, %v", b, now.Mode(), err)
		}
		return os.SameFile(fi, now)
	}
	if err := errors.Join(os.WriteFile(from, []byte("program"), 0o755), os.WriteFile(to, []byte("older"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if install() {
		t.Error("the file of sessions that live was written to")
	}
	if !install() {
		t.Error("a copy that is good was made anew")
	}
	if err := os.Chmod(to, 0o777); err != nil {
		t.Fatal(err)
	}
	if install() {
		t.Error("a copy that anybody may write to was kept")
	}
}

// TestDropMeetsTheEnd: a keeper that ends while it is told of a session's end does not keep the
// session from ending: what it noted a later worker looks at.
func TestDropMeetsTheEnd(t *testing.T) {
	m := &Manager{opt: Options{Run: t.TempDir()}}
	if err := os.Mkdir(m.keeperDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(m.keeperDir(), enforce.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // what was sent is not read: the other end hears ECONNRESET, EPIPE or the end
		}
	}()
	for range 100 {
		if err := m.dropRules(t.Context(), "00000000000000aa"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := enforce.Ask(t.Context(), filepath.Join(m.keeperDir(), enforce.Socket), enforce.Order{Verb: enforce.Hold}); !errors.Is(err, enforce.ErrEnded) {
		t.Errorf("another order: %v", err)
	}
}
