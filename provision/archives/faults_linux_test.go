package archives

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestReplacedDirectory: no archive is begun in a directory that was moved away, or lies below a
// mount: nobody would find it there.
func TestReplacedDirectory(t *testing.T) {
	s := opened(t, nil)
	must.Do(t, os.Rename(s.opt.Dir, s.opt.Dir+".old"))
	expect.Is(t, expect.Err(s.Begin(first)), os.ErrNotExist, "where there is none")
	must.Do(t, os.Mkdir(s.opt.Dir, 0o700))
	expect.Is(t, expect.Err(s.Begin(first)), chat.ErrConflict, "where there is another")
}

// TestDiscardLeavesOthers: an archive that fails removes no file that an operator just puts back,
// whose manifest comes last.
func TestDiscardLeavesOthers(t *testing.T) {
	s := opened(t, nil)
	d := begun(t, s, first)
	back := "0123456789abcdef-20251125T160000Z.home"
	must.Do(t, os.WriteFile(filepath.Join(s.opt.Dir, back), []byte("x"), 0o600))
	if err := d.Discard(); err != nil || !slices.Equal(filesIn(t, s), []string{back}) {
		t.Errorf("there is %q, %v", filesIn(t, s), err)
	}
}

// TestManifestIsReadAgain: a manifest that could not be read again makes no archive, for the chat
// would be reaped for it.
func TestManifestIsReadAgain(t *testing.T) {
	for name, label := range map[string]string{
		"not in UTF-8": "\xff", "too large": strings.Repeat("x", maxManifest),
	} {
		s := opened(t, nil)
		d := begun(t, s, first)
		a := chat.Archive{Labels: map[string]string{"k": label}}
		_, err := d.Commit(t.Context(), a, []byte("{}"))
		expect.True(t, errors.Is(err, chat.ErrInvalid), "%s: %v", name, err)
		if err := d.Discard(); err != nil || len(filesIn(t, s)) > 0 {
			t.Errorf("%s: there is %q, %v", name, filesIn(t, s), err)
		}
	}
}
