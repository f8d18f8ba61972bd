package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProgramsAreFound: chatd's other programs are found beside it, or else where they are
// installed.
func TestProgramsAreFound(t *testing.T) {
	dir := t.TempDir()
	if got, want := programBeside(filepath.Join(dir, "chatd"), "chatd-enforce"), "/usr/local/lib/chatd/chatd-enforce"; got != want {
		t.Errorf("with nothing beside chatd: %s, want %s", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "chatd-enforce"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, want := programBeside(filepath.Join(dir, "chatd"), "chatd-enforce"), filepath.Join(dir, "chatd-enforce"); got != want {
		t.Errorf("beside chatd: %s, want %s", got, want)
	}
	var cfg Config
	cfg.FindPrograms()
	if filepath.Base(cfg.Enforce) != "chatd-enforce" || filepath.Base(cfg.Shim) != "chatd-shim" {
		t.Errorf("without keys: enforce %q and shim %q", cfg.Enforce, cfg.Shim)
	}
}
