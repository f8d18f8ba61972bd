package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAttackHomeSize: what a home links to outside of it is not counted, and not read.
func TestAttackHomeSize(t *testing.T) {
	dir := t.TempDir()
	home, outside := filepath.Join(dir, "home"), filepath.Join(dir, "outside")
	for _, file := range []string{filepath.Join(home, "d", "mine"), filepath.Join(outside, "theirs")} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"link", "d/link"} {
		if err := os.Symlink(outside, filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := homeSize(home); err != nil || n < 1<<20 || n >= 2<<20 {
		t.Errorf("%d bytes, %v, want those of one file", n, err)
	}
	if n, err := homeSize(filepath.Join(dir, "none")); err != nil || n != 0 {
		t.Errorf("a home that is gone: %d, %v", n, err)
	}
}
