package archives

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const theirs = 4242 // whom commands run as

// commands gives the store a shell script as its command, run as another user.
func commands(t *testing.T, script string) func(*Options) {
	t.Helper()
	dir, err := os.MkdirTemp("/srv", "chatd-archives-")
	if err != nil {
		t.Skip("SKIPPED: needs root")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	must.Do(t, errors.Join(os.Chmod(dir, 0o711), os.Chown(dir, theirs, theirs)))
	return func(o *Options) {
		o.Command = []string{"/bin/sh", "-c", "cd " + dir + " && " + script}
		o.UID, o.GID = theirs, theirs
	}
}

// TestCommand: the command gets each file as its user, and nothing but the manifest stays.
func TestCommand(t *testing.T) {
	change := commands(t, `cat >"$CHATD_ARCHIVE_FILE" && id -u >uid && id -G >groups && env >env`)
	s := opened(t, change)
	a := committed(t, s, first)
	if got := filesIn(t, s); !a.Sent || len(got) != 1 || got[0] != string(first)+".json" {
		t.Errorf("%+v, there is %q", a, got)
	}
	dir := strings.Fields(s.opt.Command[2])[1]
	for file, want := range map[string]string{
		string(first) + ".home": "the home", string(first) + ".chat": "the rest",
		"uid": fmt.Sprint(theirs) + "\n", "groups": fmt.Sprint(theirs) + "\n",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); string(text) != want {
			t.Errorf("%s has %q, %v, want %q", file, text, err, want)
		}
	}
	if env, _ := os.ReadFile(filepath.Join(dir, "env")); strings.Contains(string(env), "HOME=") {
		t.Errorf("it has chatd's environment: %s", env)
	}
	_, err := s.Verify(t.Context(), first)
	if !errors.Is(err, chat.ErrNotFound) || !strings.Contains(err.Error(), "the operator's command has it") {
		t.Errorf("verified: %v", err)
	}
	for _, end := range []string{".home", ".chat"} { // the operator brings them back
		text, err := os.ReadFile(filepath.Join(dir, string(first)+end))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.opt.Dir, string(first)+end), text, 0o600)
		}
		must.Do(t, err)
	}
	if _, err := s.Verify(t.Context(), first); err != nil {
		t.Errorf("brought back: %v", err)
	}
}

// TestCommandFails: a command that fails, at whichever file, leaves no archive, and says why.
func TestCommandFails(t *testing.T) {
	for name, script := range map[string]string{
		"always":        `echo full >&2; exit 1`,
		"at the last":   `case $CHATD_ARCHIVE_FILE in *.json) echo full; exit 1;; esac; cat >/dev/null`,
		"by a signal":   `echo full; kill -9 $$`,
		"behind a pipe": `echo full | true`, // ends well
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, commands(t, script))
			d := begun(t, s, first)
			_, err := d.Commit(t.Context(), chat.Archive{}, []byte("{}"))
			if err == nil || !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "read 0 bytes") {
				t.Errorf("committed: %v", err)
			}
			if err := d.Discard(); err != nil || len(filesIn(t, s)) != 0 {
				t.Errorf("there is %q, %v", filesIn(t, s), err)
			}
		})
	}
}

// TestCommandHangs: a command that never ends, and its children, end with the caller.
func TestCommandHangs(t *testing.T) {
	s := opened(t, commands(t, `echo begun >begun; sleep 1000 & wait`))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		dir := strings.Fields(s.opt.Command[2])[1]
		for {
			if _, err := os.Stat(filepath.Join(dir, "begun")); err == nil || ctx.Err() != nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	d := begun(t, s, first)
	expect.Is(t, expect.Err(d.Commit(ctx, chat.Archive{}, []byte("{}"))), context.Canceled, "committed")
	expect.NoError(t, d.Discard())
}
