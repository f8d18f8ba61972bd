package safefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestReadPrivate: a file that is not root's alone is refused, and none of it is in the error.
func TestReadPrivate(t *testing.T) {
	must.Root(t, "the program must be root's")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, c := range []struct {
		mode os.FileMode
		uid  int
		want string
	}{
		{0o600, 0, ""}, {0o400, 0, ""}, {0o600, 7, "belongs to uid 7"}, {0o640, 0, "0640"},
		{0o604, 0, "0604"}, {0o602, 0, "0602"}, {0o610, 0, "0610"},
	} {
		if err := errors.Join(os.WriteFile(file, []byte("content"), 0o600),
			os.Chmod(file, c.mode), os.Chown(file, c.uid, 0)); err != nil {
			t.Fatal(err)
		}
		b, err := ReadPrivate(file, 7)
		if c.want == "" && (err != nil || string(b) != "content") || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want) || len(b) > 0) {
			t.Errorf("%o of %d: %q, %v", c.mode, c.uid, b, err)
		}
		expect.True(t, err == nil || !strings.Contains(err.Error(), "content"),
			"the error has the content: %v", err)
	}
	if err := errors.Join(os.Chown(file, 0, 0), os.Chmod(file, 0o600),
		os.Symlink(file, filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"link": "not a link", "fifo": "regular file", "none": "no such file", ".": "regular file",
	} {
		if _, err := ReadPrivate(filepath.Join(dir, name), 7); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must.Do(t, os.Chmod(dir, 0o775))
	if _, err := ReadPrivate(file, 7); err == nil ||
		!strings.Contains(err.Error(), "changed by others") {
		t.Errorf("in a directory of others: %v", err)
	}
	must.Do(t, os.Chmod(dir, 0o755))
	if _, err := ReadPrivate(file, 6); err == nil || !strings.Contains(err.Error(), "at most 6") {
		t.Errorf("too large: %v", err)
	}
}

// TestReadPrivateLinks: each directory on the way counts, whether a link or what it leads to.
func TestReadPrivateLinks(t *testing.T) {
	must.Root(t, "the program must be root's")
	root := t.TempDir()
	in := func(name string) string { return filepath.Join(root, name) }
	for _, dir := range []string{"open", "own/deep", "theirs", "sticky"} {
		must.Do(t, os.MkdirAll(in(dir), 0o755))
	}
	if err := errors.Join(os.Chmod(in("open"), 0o777), os.Chown(in("theirs"), 7, 7),
		os.Chmod(in("sticky"), 0o777|os.ModeSticky),
		os.WriteFile(in("own/deep/file"), []byte("content"), 0o600),
		os.WriteFile(in("theirs/file"), []byte("content"), 0o600),
		os.Symlink(in("own/deep"), in("open/link")),
		os.Symlink(in("own/deep"), in("sticky/link")),
		os.Lchown(in("sticky/link"), 7, 7),
		os.Symlink("own/deep", in("good")),
		os.Symlink("../../own/./deep/..", in("own/deep/round")),
		os.Symlink(in("open/link"), in("far")),
		os.Symlink(in("theirs"), in("bad")),
		os.Symlink("loop", in("loop")),
	); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"own/deep/file": "", "good/file": "", "own/../good/../deep/file": "",
		"own/deep/round/deep/file": "",
		"open/link/file":           "everybody", "far/file": "everybody",
		"open/../own/deep/file": "everybody", "bad/file": "uid 7", "loop/file": "links",
		"sticky/link/file": "uid 7",
	} {
		b, err := ReadPrivate(root+"/"+name, 7)
		if want == "" && (err != nil || string(b) != "content") || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %q", name, b, err, want)
		}
	}
}
