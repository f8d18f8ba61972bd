package roottest

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// verified is what chatd verify --json prints.
type verified struct {
	Strays []struct {
		UID   uint32
		Chat  chat.ID
		Files int
		First []string
		Find  string
	}
}

// verify runs chatd verify for one mount.
func (d *daemon) verify(t *testing.T, socket, config, mount string) (v verified, code int) {
	t.Helper()
	cmd := exec.Command(programs.chatd, "--json", "--socket", socket, "verify", "--config", config,
		"--under", mount)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
		if len(out) == 0 {
			t.Errorf("verify says %s", exit.Stderr)
		}
	}
	must.Do(t, errors.Join(err, json.Unmarshal(out, &v)))
	return v, code
}

// TestVerifyFindsWhatReapLeaves: chatd verify names a file of a reaped uid where no layout leads,
// with its chat and a command that lists it; files of the living are not named, and nothing is
// removed. A journal that journald made anew goes with the next reap.
func TestVerifyFindsWhatReapLeaves(t *testing.T) {
	needsRoot(t)
	opt := options(t)
	stray := filepath.Join(filepath.Dir(opt.State), "strays")
	mountEmpty(t, stray)
	config, socket := configFile(t, opt), filepath.Join(opt.Run, "chatd.sock")
	d := startDaemonOf(t, opt, config, "")
	awake := false
	create := func(external string) chat.Chat {
		c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: external, Awake: &awake})
		must.Do(t, err)
		return c
	}
	gone, stays, last := create("leaves a file"), create("stays"), create("last")
	put := func(c chat.Chat, name string) string {
		name = filepath.Join(stray, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600),
			os.Chown(name, int(c.UID), int(c.UID))))
		return name
	}
	left, living := put(gone, "copied by root/\n\x1b[2J"), put(stays, "shared/notes")
	if v, code := d.verify(t, socket, config, stray); code != 0 || len(v.Strays) > 0 {
		t.Errorf("before a reap: exit %d, %+v", code, v)
	}
	must.Do(t, d.Reap(t.Context(), gone.ID))
	v, code := d.verify(t, socket, config, stray)
	if code != 1 || len(v.Strays) != 1 || v.Strays[0].UID != gone.UID || v.Strays[0].Chat != gone.ID ||
		v.Strays[0].Files != 1 || !strings.HasSuffix(v.Strays[0].First[0], `/copied by root/\n\x1b[2J"`) {
		t.Fatalf("exit %d, %+v", code, v)
	}
	list, err := exec.Command("bash", "-c", v.Strays[0].Find).Output()
	if must.Do(t, err); string(list) != left+"\n" {
		t.Errorf("%s lists %q", v.Strays[0].Find, list)
	}
	expect.True(t, exists(left)() && exists(living)(), "a file was removed")
	mountEmpty(t, "/var/log/journal")
	journal := fileTrace("a journal", "/var/log/journal/6f/user-UID.journal", false)
	journal.put(t, stays)
	journal.put(t, gone) // as journald does that rotates its files
	must.Do(t, d.Reap(t.Context(), last.ID))
	if journal.has(t, gone) || !journal.has(t, stays) {
		t.Errorf("the journal of the reaped is there: %v, of the living: %v", journal.has(t, gone),
			journal.has(t, stays))
	}
}
