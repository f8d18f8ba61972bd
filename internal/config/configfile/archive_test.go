package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/config"
)

func loadText(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Flags{File: file})
}

// TestArchive: archives have a directory; a command has a user; a time after which something is
// gone is no slip; and no chat is reaped without an archive unless its profile says so.
func TestArchive(t *testing.T) {
	cfg, err := loadText(t, `archive:
  dir: /a
  command: [/bin/keep, now]
  user: backup
  recipients: /r
  identities: /i
  expire_after: 180d
profiles:
  default: {reap_after: 26w}
`)
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Archive
	if a.Dir != "/a" || len(a.Command) != 2 || a.User != "backup" || a.Recipients != "/r" ||
		a.Identities != "/i" || a.ExpireAfter.D() != 180*24*time.Hour ||
		filepath.Base(a.Program) != "chatd-archive" {
		t.Errorf("%+v", a)
	}
	if p := cfg.Profiles["default"]; p.ReapAfter.D() != 26*7*24*time.Hour || p.ReapWithoutArchive {
		t.Errorf("reap_after is %s", p.ReapAfter)
	}
	if cfg, err := loadText(t, "profiles: {default: {reap_after: 1h, reap_without_archive: true}}\n"); err != nil ||
		cfg.Archive != nil {
		t.Errorf("without archives: %+v, %v", cfg.Archive, err)
	}
	for text, want := range map[string]string{
		"archive: {}\n":         "archive.dir",
		"archive: {dir: a}\n":   "1: archive.dir: \"a\": want an absolute path",
		"archive: {dirs: /a}\n": "unknown key",
		"archive:\n  dir: /a\n  command: [keep]\n  user: x\n":              "3: archive.command: \"keep\"",
		"archive:\n  dir: /a\n  command: [/bin/keep]\n":                    "want archive.user too",
		"archive:\n  dir: /a\n  user: x\n":                                 "3: archive.user: there is no command",
		"archive:\n  dir: /a\n  expire_after: 30s\n":                       "3: archive.expire_after: \"30s\": want 0",
		"archive:\n  dir: /a\n  recipients: r\n":                           "3: archive.recipients",
		"profiles:\n  default:\n    reap_after: 30d\n":                     "3: profiles.default.reap_after: chats of profile default would be gone",
		"archive: {dir: /a}\nprofiles:\n  default:\n    reap_after: 30s\n": "4: profiles.default.reap_after: \"30s\"",
	} {
		if _, err := loadText(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
