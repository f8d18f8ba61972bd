package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesMasks: what is there when a session starts is closed or read-only as the rules
// say, and nothing is left on the host.
func TestRulesMasks(t *testing.T) {
	opt := ruledOptions(t, `
access:
  useDefaults: false
  deny: ["**/.env", "~/keys/**"]
  rules:
    - {deny: "~/conf", ops: [write]}
    - {deny: "~/conf/inner", ops: [bash]}
agents:
  main:
    access:
      rules: [{allow: "~/keys/public/**"}]
`)
	m := open(t, opt)
	c := sleeper(t, m, "masks")
	for _, name := range []string{".env", "a/b/.env", "keys/private", "keys/public/k", "conf/x", "conf/inner/y", "plain", "twin"} {
		putFile(t, c, name, secret+" "+name)
	}
	must.Do(t, os.Remove(filepath.Join(c.Home, "twin")))
	must.Do(t, os.Link(filepath.Join(c.Home, "a/b/.env"), filepath.Join(c.Home, "twin")))
	rc := putFile(t, c, ".bashrc", "cat ~/.env ~/keys/private > ~/seen 2>&1\n")
	must.Do(t, os.Chmod(rc, 0o644))
	wake(t, m, c.ID)
	if got := tells(t, m, c, "cat ~/seen"); strings.Contains(got, secret) || !strings.Contains(got, "Operation not permitted") {
		t.Errorf("the chat's first command read %q", got)
	}
	t.Log(tells(t, m, c, "ls -la . keys keys/public conf a/b; cat /proc/self/mountinfo | tail -12"))
	for _, name := range []string{".env", "a/b/.env", "keys/private", "conf/inner/y", "twin"} {
		refused(t, m, c, "cat %s", name)
		refused(t, m, c, "echo over > %s", name)
	}
	refused(t, m, c, "mv conf/inner/y gone")
	for _, name := range []string{".env", "a/b/.env", "keys/private", "twin"} {
		refused(t, m, c, "mv %[1]s gone; cat gone; code=$?; mv gone %[1]s; exit $code", name)
	}
	for _, name := range []string{"keys/public/k", "conf/x", "plain"} {
		if got := tells(t, m, c, "cat %s", name); !strings.Contains(got, secret) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := tells(t, m, c, "echo more >> conf/x"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("a write to what is read-only says %s", got)
	}
	if got := tells(t, m, c, "echo more > keys/public/n && cat keys/public/n"); !strings.Contains(got, "more") {
		t.Errorf("a write to an exception says %s", got)
	}
	for _, name := range []string{".env", "a/b/.env", "keys/private", "conf/x"} {
		expect.Equal(t, string(must.Get(os.ReadFile(filepath.Join(c.Home, name)))(t)), secret+" "+name,
			"on the host %s holds", name)
	}
}
