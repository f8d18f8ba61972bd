package homedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ownedHome is the home of a chat that tests make.
type ownedHome struct {
	parent, name string
	uid          uint32
}

func (h ownedHome) path() string { return filepath.Join(h.parent, h.name) }

func (h ownedHome) makeInstanceDirs() error { return MakeInstanceDirs(h.parent, h.name, h.uid) }

// ownHome makes a home below a parent of root's.
func ownHome(t *testing.T) ownedHome {
	t.Helper()
	must.Root(t, "it becomes a chat's uid")
	dir := must.Get(os.MkdirTemp("/srv", "chatd-home-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := ownedHome{parent: filepath.Join(dir, "homes"), name: "0123456789abcdef", uid: 1895825321}
	for _, d := range []string{dir, h.parent} {
		must.Do(t, safefs.MakeRoot(d, 0o711))
	}
	must.Do(t, MakeOwned(h.parent, h.name, h.uid, 0o700, ""))
	return h
}

func ownedBy(t *testing.T, path string, uid uint32) bool {
	t.Helper()
	var st unix.Stat_t
	expect.NoError(t, unix.Lstat(path, &st))
	return st.Uid == uid && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&0o777 == 0o700
}

// TestTry: homes that only their users may enter pass, and others do not.
func TestTry(t *testing.T) {
	h := ownHome(t)
	const other = 1895825330
	err := errors.Join(Try(h.parent, other, 0o700), TryToEnter(h.parent, h.name, other))
	expect.NoError(t, err)
	if err := Try(h.parent, other, 0o755); err == nil {
		t.Error("a home that all may enter passed")
	}
	expect.Is(t, expect.Err(os.Lstat(filepath.Join(h.parent, triedName))), fs.ErrNotExist,
		"the home of the try is left")
	expect.Is(t, TryToEnter(h.parent, "missing", other), chat.ErrNotFound, "a missing home")
	must.Do(t, os.Chmod(h.parent, 0o777))
	if err := TryToEnter(h.parent, h.name, other); err == nil {
		t.Error("homes that all may list and write to passed")
	}
}

// No file of a chat's in place of its directories makes MakeInstanceDirs act outside the home, and
// the file stays.
func TestInstanceDirs(t *testing.T) {
	h := ownHome(t)
	home := h.path()
	for range 2 {
		must.Do(t, h.makeInstanceDirs())
		for _, rel := range chat.InstanceDirs() {
			expect.True(t, ownedBy(t, filepath.Join(home, rel), h.uid), "~/%s is not the chat's", rel)
		}
	}
	outside := filepath.Join(filepath.Dir(h.parent), "outside")
	must.Do(t, os.Mkdir(outside, 0o777))
	os.Chmod(outside, 0o777) // where anybody could make something
	for _, rel := range []string{"skills", "runtime-user-env"} {
		must.Do(t, os.RemoveAll(filepath.Join(home, rel)))
		must.Do(t, os.Symlink(outside, filepath.Join(home, rel)))
	}
	os.Remove(filepath.Join(home, "logs"))
	must.Do(t, os.WriteFile(filepath.Join(home, "logs"), []byte("mine"), 0o600))
	must.Do(t, h.makeInstanceDirs())
	if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
		t.Errorf("outside there is %v, %v", made, err)
	}
	if text, err := os.ReadFile(filepath.Join(home, "logs")); string(text) != "mine" {
		t.Errorf("the chat's own file is %q, %v", text, err)
	}
	os.Chmod(home, 0)
	os.Remove(filepath.Join(home, "state"))
	if err := h.makeInstanceDirs(); err != nil {
		t.Errorf("in a home that is closed to its own chat: %v", err)
	}
}

// A mount point is made through no link, and what is in its way moves aside.
func TestMountPoint(t *testing.T) {
	h := ownHome(t)
	home := h.path()
	outside := filepath.Join(filepath.Dir(h.parent), "outside")
	must.Do(t, os.Mkdir(outside, 0o777))
	os.Chmod(outside, 0o777)
	for name, c := range map[string]struct {
		before func(t *testing.T)
		rel    string
		file   bool
		moved  string
	}{
		"nothing there":      {nil, "a/b/c", false, ""},
		"a file":             {nil, "d/f", true, ""},
		"already there":      {func(t *testing.T) { mkdirAs(t, h.uid, home+"/e") }, "e", false, ""},
		"a link":             {func(t *testing.T) { link(t, outside, home+"/l") }, "l", false, "l.chatd-1"},
		"a link on the way":  {func(t *testing.T) { link(t, outside, home+"/w") }, "w/x", false, "w.chatd-1"},
		"a link up":          {func(t *testing.T) { link(t, "../../outside", home+"/u") }, "u/x", false, "u.chatd-1"},
		"a loop":             {func(t *testing.T) { link(t, "o", home+"/o") }, "o/x", true, "o.chatd-1"},
		"a directory":        {func(t *testing.T) { mkdirAs(t, h.uid, home+"/g") }, "g", true, "g.chatd-1"},
		"a file on the way":  {func(t *testing.T) { os.WriteFile(home+"/h", nil, 0o600) }, "h/i", false, "h.chatd-1"},
		"a fifo":             {func(t *testing.T) { unix.Mkfifo(home+"/p", 0o600) }, "p", true, "p.chatd-1"},
		"closed":             {func(t *testing.T) { mkdirAs(t, h.uid, home+"/z"); os.Chmod(home+"/z", 0) }, "z/y", false, "z.chatd-1"},
		"aside is taken too": {func(t *testing.T) { link(t, "/", home+"/t"); link(t, "/", home+"/t.chatd-1") }, "t", false, "t.chatd-2"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.before != nil {
				c.before(t)
			}
			var moved []string
			err := Inside(h.parent, h.name, h.uid, func(fd int) (err error) { moved, err = MakeMountPoint(fd, c.rel, c.file); return err })
			expect.True(t, err == nil && strings.Join(moved, " ") == c.moved,
				"moved %q, %v; want %q", moved, err, c.moved)
			fi, err := os.Lstat(filepath.Join(home, c.rel))
			expect.True(t, err == nil && fi.IsDir() != c.file && (c.file || fi.IsDir()),
				"there is %v, %v", fi, err)
			if made, err := os.ReadDir(outside); err != nil || len(made) > 0 {
				t.Errorf("outside there is %v, %v", made, err)
			}
		})
	}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	must.Do(t, os.Symlink(to, at))
}

func mkdirAs(t *testing.T, uid uint32, dir string) {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o700))
	must.Do(t, os.Chown(dir, int(uid), int(uid)))
}
