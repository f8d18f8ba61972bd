package orders

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestRead: an order is read strictly, and in bounds.
func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"verb":"hold","pid":7}`:            "",
		`{"verb":"hold","only":"/srv"}`:      "unknown field",
		`{"verb":"hold"`:                     "unexpected EOF",
		`{"verb":7}`:                         "cannot unmarshal",
		strings.Repeat(" ", maxOrder) + "{}": "EOF",
	} {
		o, err := Read(strings.NewReader(text))
		switch {
		case want == "" && (err != nil || o.Verb != Apply || o.PID != 7):
			t.Errorf("%s: %+v, %v", text, o, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// TestMakeMasks: the files have no mode, whatever they had.
func TestMakeMasks(t *testing.T) {
	dir := t.TempDir()
	for _, when := range []string{"made", "made again"} {
		if err := MakeMasks(dir); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for name, isDir := range map[string]bool{ClosedDirectory: true, ClosedFile: false} {
			at := filepath.Join(dir, name)
			fi, err := os.Lstat(at)
			expect.True(t, err == nil && fi.IsDir() == isDir && fi.Mode().Perm() == 0,
				"%s: %s: %v, %v", when, name, fi, err)
			if os.Geteuid() != 0 {
				continue // it could not be opened again
			}
			expect.NoError(t, os.Chmod(at, 0o755))
		}
		if os.Geteuid() != 0 {
			return
		}
	}
}
