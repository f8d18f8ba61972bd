//go:build e2e

package vagrant

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// secret stands in the files that the rules of profile ruled deny.
const secret = "the-content-of-the-file"

// TestHostRules: the enforcer's unit keeps file rules, for what was there and for what
// somebody else makes later, through restarts of both services; and new rules reach a
// session that is awake.
func TestHostRules(t *testing.T) {
	useProfiles(t)
	c := create(t, "ruled")
	putFile(t, c, "plain")
	putFile(t, c, ".env")
	reads(t, c, "plain", true)
	reads(t, c, ".env", false)
	if !slices.ContainsFunc(get(t, c.ID).Layers, func(l chat.Layer) bool { return l.Name == chat.LayerView && strings.Contains(l.By, "chatd-enforce") }) {
		t.Errorf("no layer says who keeps the rules: %+v", get(t, c.ID).Layers)
	}
	before := sessionOf(t, c.ID)
	restart(t)
	putFile(t, c, "a/.env")
	reads(t, c, "a/.env", false)
	eventually(t, timeout, "chatd holds the enforcer's groups", func() bool {
		_, err := os.Lstat("/run/chatd/keeper/groups")
		return err == nil
	})
	output(t, "systemctl", "restart", "chatd-keeper.service")
	putFile(t, c, "meanwhile/.env")
	reads(t, c, "meanwhile/.env", false)
	reads(t, c, ".env", false)
	eventually(t, timeout, "the enforcer takes the session up again", func() bool {
		return slices.ContainsFunc(get(t, c.ID).Layers, func(l chat.Layer) bool { return l.Name == chat.LayerView && l.State == chat.LayerOn })
	})
	putFile(t, c, "b/.env")
	reads(t, c, "b/.env", false)
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
	t.Cleanup(func() { reload(t, rules) })
	reload(t, "access: {useDefaults: false}\n")
	eventually(t, timeout, "the control: without the rule the file can be read", func() bool {
		return strings.Contains(run(t, c.ID, reader(".env")).Stdout, secret)
	})
	reload(t, rules)
	eventually(t, timeout, "the rule is back", func() bool {
		return !strings.Contains(run(t, c.ID, reader(".env")).Stdout, secret)
	})
}

// putFile writes a file into the home, as an operator would.
func putFile(t *testing.T, c chat.Chat, name string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(c.Home, name)), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, name), []byte(secret), 0o644))
}

// reader is a command in which nobody finds the name by reading it.
func reader(name string) string {
	return "python3 -c 'print(open(\"" + strings.ReplaceAll(name, "e", "\"+chr(101)+\"") + "\").read())'"
}

func reads(t *testing.T, c chat.Chat, name string, want bool) {
	t.Helper()
	r := run(t, c.ID, reader(name))
	got := strings.Contains(r.Stdout, secret)
	expect.True(t, got == want, "%s can be read: %t, want %t: %+v", name, got, want, r)
}

// reload gives chatd other rules as an operator does.
func reload(t *testing.T, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(rulesFile, []byte(text), 0o600))
	output(t, "systemctl", "reload", "chatd.service")
}
