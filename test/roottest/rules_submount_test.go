package roottest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesOfASubmount: file rules hold where a mount of the host lies in what a session sees, as
// /usr/local does on many hosts, and in that mount too.
func TestRulesOfASubmount(t *testing.T) {
	needsRoot(t)
	if onHost() {
		t.Skip("mounts over /usr/local, which is the machine's")
	}
	must.Do(t, unix.Mount("tmpfs", "/usr/local", "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { must.Do(t, unix.Unmount("/usr/local", unix.MNT_DETACH)) })
	put := func(name string) {
		t.Helper()
		file := filepath.Join("/usr/local", name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(secret), 0o644)))
	}
	put("share/plain")
	put("share/.env")
	m := open(t, ruledOptions(t, `access: {useDefaults: false, rules: [{deny: "**/.env"}, {deny: "/usr/share/common-licenses/**"}]}`))
	c, plain := create(t, m, "submount", "ruled"), create(t, m, "without rules", "default")
	expect.Equal(t, tells(t, m, plain, "cat /usr/local/share/.env"), secret, "without rules it says")
	refused(t, m, c, "cat /usr/local/share/.env")
	refused(t, m, c, "ls /usr/share/common-licenses")
	expect.Equal(t, tells(t, m, c, "cat /usr/local/share/plain"), secret, "what no rule is about")
	put("later/.env")
	put("later/plain")
	until(t, "what came later is seen", func() bool { return run(t, m, c.ID, "cat /usr/local/later/plain").Stdout == secret })
	refused(t, m, c, "cat /usr/local/later/.env")
}
