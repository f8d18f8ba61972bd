package plan

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
)

// TestSettings: the settings of installed programs are bound, by their real directories;
// links, files, and what no pattern names are not.
func TestSettings(t *testing.T) {
	for _, pattern := range etcSettings {
		if _, err := path.Match(pattern, "x"); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	root := t.TempDir()
	for _, dir := range []string{"etc/fonts", "etc/java-17-openjdk", "etc/java-11-openjdk", "etc/chromium.d", "etc/ImageMagick-6", "etc/sudoers.d", "etc/ssh"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/root", filepath.Join(root, "etc/java-8-openjdk")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/maven"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"/etc/ImageMagick-6", "/etc/chromium.d", "/etc/fonts", "/etc/java-11-openjdk", "/etc/java-17-openjdk"}
	if got := settingsIn(root); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
