package archive

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// reflinked is a directory on a new file system that has reflinks.
func reflinked(t *testing.T) string {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.xfs")
	if os.Geteuid() != 0 || err != nil {
		must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root and mkfs.xfs")
		t.Skip("needs root and mkfs.xfs: to make a file system")
	}
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must.Do(t, os.WriteFile(image, nil, 0o600))
	must.Do(t, os.Truncate(image, 320<<20))
	for _, args := range [][]string{{mkfs, "-q", image}, {"mount", "-o", "loop", image, at}} {
		must.Run(t, exec.Command(args[0], args[1:]...))
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(at, unix.MNT_DETACH)) })
	return at
}

// kept is what describe says, except for blocks: XFS takes some in advance.
func kept(t *testing.T, root string) map[string]string {
	all := describe(t, root)
	for name, says := range all {
		all[name] = regexp.MustCompile(` blocks \d+`).ReplaceAllString(says, "")
	}
	return all
}

// TestClone: a clone is what an unpack of a pack is, leaves the original as it was, and later
// writes to that do not reach it.
func TestClone(t *testing.T) {
	at := reflinked(t)
	from := everyKind(t)
	must.Do(t, os.Remove(from+"/long target")) // XFS has none over 1,024 bytes
	must.Run(t, exec.Command("cp", "-a", from, at+"/home"))
	must.Do(t, unix.Mknod(at+"/home/socket", unix.S_IFSOCK|0o600, 0))
	before := kept(t, at+"/home")
	must.Do(t, os.Mkdir(at+"/clone", 0o700))
	s, err := Clone(openDirectory(t, at+"/home"), openDirectory(t, at+"/clone"), nil)
	must.Do(t, err)
	same(t, before, kept(t, at+"/home"))
	expect.True(t, s.Left == 1 && len(s.LeftNames) == 1, "left out are %d, %q", s.Left, s.LeftNames)
	must.Do(t, os.WriteFile(at+"/home/plain", []byte("later"), 0))
	delete(before, "socket")
	same(t, before, kept(t, at+"/clone"))
	_, packed := pack(t, at+"/clone", "")
	expect.True(t, packed.Entries == s.Entries && packed.Bytes == s.Bytes,
		"packed were %+v, cloned %+v", packed, s)
	_, err = Clone(openDirectory(t, at+"/home"), openDirectory(t, at+"/clone"), nil)
	expect.Is(t, err, chat.ErrExists, "cloned onto a clone")
}

// TestCloneWithoutReflinks: where there are none the error says so.
func TestCloneWithoutReflinks(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(from+"/file", []byte("x"), 0o600))
	_, err := Clone(openDirectory(t, from), openDirectory(t, to), nil)
	var magic unix.Statfs_t
	must.Do(t, unix.Statfs(from, &magic))
	if magic.Type == unix.XFS_SUPER_MAGIC || magic.Type == unix.BTRFS_SUPER_MAGIC {
		t.Skip("the temporary directory has reflinks")
	}
	expect.Is(t, err, chat.ErrUnsupported, "")
}
