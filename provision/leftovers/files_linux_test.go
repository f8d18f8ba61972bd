package leftovers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// TestRemoveJournals: of one uid all journals go, and no name that only begins alike.
func TestRemoveJournals(t *testing.T) {
	top := t.TempDir()
	defer func(was []string) { journalDirs = was }(journalDirs)
	journalDirs = []string{top, filepath.Join(top, "none")}
	gone := []string{
		"user-1234.journal", "user-1234@0005f.journal", "user-1234@0005f-00a.journal~",
		"user-1234.journal~",
	}
	stay := []string{
		"user-12345.journal", "user-123.journal", "user-12345@0005f.journal", "user-01234.journal",
		"user-+1234.journal", "system.journal", "user-1234.journal.gz", "user-1234x.journal",
		"xuser-1234.journal", "user-.journal", "user-1234",
		"user-4294968530.journal", // 1234 in 32 bits
	}
	must.Do(t, os.Mkdir(filepath.Join(top, "machine"), 0o755))
	for _, name := range append(slices.Clone(gone), stay...) {
		must.Do(t, os.WriteFile(filepath.Join(top, "machine", name), nil, 0o640))
	}
	must.Do(t, os.WriteFile(filepath.Join(top, "user-1234.journal"), nil, 0o640)) // no directory
	must.Do(t, RemoveJournals(func(uid uint32) bool { return uid == 1234 }))
	for _, name := range gone {
		expect.True(t, !exists(filepath.Join(top, "machine", name)), "%s is left", name)
	}
	for _, name := range append(stay, "../user-1234.journal") {
		expect.True(t, exists(filepath.Join(top, "machine", name)), "%s is gone", name)
	}
}

// TestRemoveSubordinate: the lines of a user go, by name and by number, and the file stays what it
// was otherwise; a file that another tool has locked is left alone.
func TestRemoveSubordinate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	defer func(was []string) { subordinateFiles = was }(subordinateFiles)
	subordinateFiles = []string{file, file + "-none"}
	text := "a:1:2\nchat-1:100000:65536\n7:3:4\nchat-10:5:6\n77:8:9"
	must.Do(t, os.WriteFile(file, []byte(text), 0o640))
	must.Do(t, os.Link(file, file+".lock"))
	done := make(chan error, 1)
	go func() { done <- RemoveSubordinate("chat-1", 7) }()
	select {
	case err := <-done:
		t.Fatalf("it does not wait for the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must.Do(t, os.Remove(file+".lock"), <-done)
	b, err := os.ReadFile(file)
	must.Do(t, err)
	expect.True(t, string(b) == "a:1:2\nchat-10:5:6\n77:8:9", "left are %q", b)
	if fi, err := os.Stat(file); err != nil || fi.Mode() != 0o640 || exists(file+".lock") {
		t.Errorf("the file is %v, %v", fi.Mode(), err)
	}
	if all, _ := filepath.Glob(filepath.Dir(file) + "/*"); len(all) != 1 {
		t.Errorf("beside it are %q", all)
	}
}
