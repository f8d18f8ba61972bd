package plan

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/test/must"
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
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must.Do(t, os.Symlink("/root", filepath.Join(root, "etc/java-8-openjdk")))
	must.Do(t, os.WriteFile(filepath.Join(root, "etc/maven"), nil, 0o644))
	want := []string{"/etc/ImageMagick-6", "/etc/chromium.d", "/etc/fonts", "/etc/java-11-openjdk", "/etc/java-17-openjdk"}
	if got := settingsIn(root); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
