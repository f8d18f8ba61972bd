package safefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRemoveTree removes what a chat may leave: deep, wide, with hostile names,
// links out, closed directories, fifos and sockets; and nothing beside it.
func TestRemoveTree(t *testing.T) {
	parent := t.TempDir()
	outside := filepath.Join(parent, "outside")
	tree := filepath.Join(parent, "tree")
	must := func(err error) {
		t.Helper()
		must.Do(t, err)
	}
	must(os.MkdirAll(outside, 0o700))
	must(os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	must(os.MkdirAll(filepath.Join(tree, "closed", "in"), 0o700))
	for _, name := range []string{"-rf", "new\nline", ".chatd-1", strings.Repeat("n", 255), "\xff\xfe", "*"} {
		must(os.WriteFile(filepath.Join(tree, name), nil, 0o400))
		must(os.MkdirAll(filepath.Join(tree, "dirs", name, "in", "in"), 0o700))
	}
	must(os.Mkdir(filepath.Join(tree, ".chatd-2"), 0o700)) // a name that removing wants to use
	must(os.Symlink(outside, filepath.Join(tree, "link")))
	must(os.Symlink(outside, filepath.Join(tree, "dirs", "link")))
	must(unix.Mkfifo(filepath.Join(tree, "fifo"), 0o600))
	must(os.Link(filepath.Join(outside, "kept"), filepath.Join(tree, "hard")))
	deep(t, tree, 5000)
	for i := range 3000 {
		must(os.WriteFile(filepath.Join(tree, fmt.Sprint("wide", i)), nil, 0o600))
	}
	if os.Geteuid() == 0 { // an owner without root could not remove it either
		must(os.Chmod(filepath.Join(tree, "closed", "in"), 0))
		must(os.Chmod(filepath.Join(tree, "closed"), 0))
	}
	must(Remove(parent, "tree", "not there"))
	if _, err := os.Lstat(tree); !os.IsNotExist(err) {
		t.Errorf("the tree is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
}

// deep nests directories by descriptor: the path is longer than PATH_MAX.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o700)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	must.Do(t, err)
}

// TestRemoveTreeHoldsFewDescriptors removes a deep tree under a limit that a
// recursion would break.
func TestRemoveTreeHoldsFewDescriptors(t *testing.T) {
	parent := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(parent, "tree"), 0o700))
	deep(t, filepath.Join(parent, "tree"), 2000)
	var before unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: before.Max}))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) }()
	expect.NoError(t, Remove(parent, "tree"))
}
