package archives

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestReplacedDirectory: no archive is begun in a directory that was moved away, or lies below a
// mount: nobody would find it there.
func TestReplacedDirectory(t *testing.T) {
	s := opened(t, nil)
	if err := os.Rename(s.opt.Dir, s.opt.Dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("where there is none: %v", err)
	}
	if err := os.Mkdir(s.opt.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(first); !errors.Is(err, chat.ErrConflict) {
		t.Errorf("where there is another: %v", err)
	}
}

// TestDiscardLeavesOthers: an archive that fails removes no file that an operator just puts back,
// whose manifest comes last.
func TestDiscardLeavesOthers(t *testing.T) {
	s := opened(t, nil)
	d := begun(t, s, first)
	back := "0123456789abcdef-20251125T160000Z.home"
	if err := os.WriteFile(filepath.Join(s.opt.Dir, back), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		if !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Discard(); err != nil || len(filesIn(t, s)) > 0 {
			t.Errorf("%s: there is %q, %v", name, filesIn(t, s), err)
		}
	}
}
