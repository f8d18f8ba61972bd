package roottest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOverlaysRefused: on a host whose /usr is on two overlays the kernel allows no third.
// chatd serves, its sessions come up, and the layer says what is lacking.
func TestOverlaysRefused(t *testing.T) {
	needsRoot(t)
	stackUsr(t)
	m := open(t, attackOptions(t))
	if l := layersNow(t, m)[chat.LayerView]; l.State != chat.LayerWeaker || !strings.Contains(l.Probe, "NOT HELD: lock /usr") || l.Fix == "" {
		t.Errorf("view is %s, fix %q: %s", l.State, l.Fix, l.Probe)
	}
	a, b := inmateOf(t, m, "stacked a", "default"), inmateOf(t, m, "stacked b", "default")
	expect.Equal(t, overheard(talkByOpens(t, a, b, "/usr/bin")), "ok",
		"without overlays the attack does not go through")
}

// stackUsr puts two overlays over /usr, until the test ends.
func stackUsr(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := `set -e; cd "$0"; mkdir empty one two
mount -t overlay one -o lowerdir=/usr:empty one; mount -t overlay two -o lowerdir=one:empty two; mount --bind two /usr`
	must.Run(t, exec.Command("sh", "-c", script, dir))
	t.Cleanup(func() {
		for _, at := range []string{"/usr", filepath.Join(dir, "two"), filepath.Join(dir, "one")} {
			if out, err := exec.Command("umount", "-l", at).CombinedOutput(); err != nil {
				t.Errorf("umount %s: %v: %s", at, err, out)
			}
		}
	})
}

// TestRulesOverOverlays: a rule about a large tree that sessions share holds in each of
// them, though each has inodes of its own there and the tree is looked through once.
func TestRulesOverOverlays(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["/srv/**/*.key"]}`)
	dir := exposedTree(t, &opt)
	for i := range 60 {
		sub := filepath.Join(dir, "sub", strings.Repeat("x", i%20+1))
		must.Do(t, os.MkdirAll(sub, 0o755))
		for j := range 20 {
			must.Do(t, os.WriteFile(filepath.Join(sub, string(rune('a'+j))+strings.Repeat("y", i/20)), nil, 0o644))
		}
	}
	key, other := filepath.Join(dir, "sub", "x", "host.key"), filepath.Join(dir, "sub", "xx", "innocent")
	must.Do(t, os.WriteFile(key, []byte("secret"), 0o644))
	must.Do(t, os.Link(key, other))
	p := opt.Profiles["ruled"]
	p.ExposePaths = opt.Profiles["reader"].ExposePaths
	opt.Profiles["ruled"] = p
	m := open(t, opt)
	for _, name := range []string{"first", "second", "third"} {
		c := create(t, m, "overlay rules "+name, "ruled")
		for _, f := range []string{key, other} {
			if r := run(t, m, c.ID, "cat "+f); r.Exit == 0 || r.Stdout != "" {
				t.Errorf("the %s chat reads %s: %+v", name, f, r)
			}
		}
		if r := run(t, m, c.ID, "cat "+dir+"/file01"); r.Stdout != "x" {
			t.Errorf("the %s chat does not read what is allowed: %+v", name, r)
		}
	}
}
