package homedir

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// put makes a file of the chat's own, with the directories above it.
func put(t *testing.T, uid uint32, home, rel, text string) {
	t.Helper()
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		defer os.Lchown(filepath.Join(home, dir), int(uid), int(uid))
	}
	file := filepath.Join(home, rel)
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	must.Do(t, os.Lchown(file, int(uid), int(uid)))
}

// TestOneConfigUnderTwoNames: XDG_CONFIG_HOME and ~/.config name one directory, in a new home and
// in one with a skeleton. A directory that the chat has under the second name stays as it is.
func TestOneConfigUnderTwoNames(t *testing.T) {
	const xdg = "runtime-user-env/config/"
	for name, c := range map[string]struct {
		files  []string
		same   bool
		absent string
	}{
		"new":         {nil, true, ""},
		"skeleton":    {[]string{".config/opencode/x"}, true, ""},
		"a directory": {[]string{xdg + "opencode/x", ".config/other/y"}, false, xdg + "other/y"},
	} {
		t.Run(name, func(t *testing.T) {
			h := ownHome(t)
			home := h.path()
			for _, f := range c.files {
				put(t, h.uid, home, f, f)
			}
			for range 2 {
				must.Do(t, h.makeInstanceDirs())
			}
			put(t, h.uid, home, ".config/new", "new")
			if _, err := os.Stat(filepath.Join(home, xdg, "new")); (err == nil) != c.same {
				t.Errorf("~/.config/new by its other name: %v", err)
			}
			for _, f := range c.files {
				if text, err := os.ReadFile(filepath.Join(home, f)); string(text) != f {
					t.Errorf("%s: %q, %v", f, text, err)
				}
			}
			if _, err := os.Stat(filepath.Join(home, c.absent)); c.absent != "" && err == nil {
				t.Errorf("%s is there", c.absent)
			}
			for _, l := range chat.InstanceLinks() {
				to, err := os.Readlink(filepath.Join(home, l.Name))
				if c.same && (err != nil || to != l.Target()) {
					t.Errorf("~/%s leads to %q, %v", l.Name, to, err)
				}
			}
		})
	}
}

// TestAttackInstanceLinks: a chat that puts links where its directories belong has nothing
// moved into or out of its home.
func TestAttackInstanceLinks(t *testing.T) {
	h := ownHome(t)
	home := h.path()
	outside := filepath.Join(filepath.Dir(h.parent), "outside")
	must.Do(t, os.MkdirAll(filepath.Join(outside, "config", "theirs"), 0o777))
	for _, dir := range []string{outside, filepath.Join(outside, "config"), filepath.Join(outside, "config", "theirs")} {
		os.Chmod(dir, 0o777)
	}
	for _, l := range []string{"runtime-user-env", ".config", ".local"} {
		must.Do(t, os.Symlink(outside, filepath.Join(home, l)))
	}
	must.Do(t, h.makeInstanceDirs())
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(outside, "config", "theirs"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.Errorf("outside was changed: %v", err)
	}
	if all, err := os.ReadDir(outside); err != nil || len(all) != 1 {
		t.Errorf("outside there is %v, %v", all, err)
	}
}
