package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOnlyRootsProgram: a program that a user besides root can write to is refused, with the
// reason, and not installed.
func TestOnlyRootsProgram(t *testing.T) {
	must.Root(t, "the program must be root's")
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
		err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600)
		must.Do(t, errors.Join(err, os.Chown(file, c.uid, 0), os.Chmod(file, c.mode)))
		copied := filepath.Join(t.TempDir(), "copy")
		for what, err := range map[string]error{
			"checked": CheckProgram(file), "installed": InstallProgram(file, copied),
		} {
			refused := c.want != ""
			expect.True(t, (err != nil) == refused && (!refused || strings.Contains(err.Error(), c.want)),
				"%s: mode %v of uid %d: %v, want %q", what, c.mode, c.uid, err, c.want)
		}
		if _, err := os.Stat(copied); (err == nil) != (c.want == "") {
			t.Errorf("mode %v of uid %d: the copy: %v", c.mode, c.uid, err)
		}
	}
}

// TestNoProgram: a file that is no program is refused, and a program of the host is not.
func TestNoProgram(t *testing.T) {
	dir := t.TempDir()
	for program, want := range map[string]string{
		dir: "want a file that may be executed", dir + "/none": "no such file", "": "no such file",
	} {
		err := CheckProgram(program)
		expect.True(t, errors.Is(err, chat.ErrUnsupported) && strings.Contains(err.Error(), want),
			"%q: %v, want %q", program, err, want)
	}
	expect.NoError(t, CheckProgram("/bin/sh"))
}

// TestInstallAgain: a copy that is as the program stays; one that another could write to, or with
// other content, is made anew.
func TestInstallAgain(t *testing.T) {
	must.Root(t, "the program must be root's")
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	install := func() (kept bool) {
		fi, err := os.Stat(to)
		err = errors.Join(err, InstallProgram(from, to))
		now, nerr := os.Stat(to)
		must.Do(t, errors.Join(err, nerr))
		if b, err := os.ReadFile(to); err != nil || string(b) != "program" || now.Mode() != 0o755 {
			t.Errorf("the copy is %q with mode %v, %v", b, now.Mode(), err)
		}
		return os.SameFile(fi, now)
	}
	err := os.WriteFile(from, []byte("program"), 0o755)
	must.Do(t, errors.Join(err, os.WriteFile(to, []byte("older"), 0o755)))
	expect.True(t, !install(), "the file of sessions that live was written to")
	expect.True(t, install(), "a copy that is good was made anew")
	must.Do(t, os.Chmod(to, 0o777))
	expect.True(t, !install(), "a copy that anybody may write to was kept")
}
