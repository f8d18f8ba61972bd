package plan

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteShims(t *testing.T) {
	dir, bin := filepath.Join(t.TempDir(), "shims"), t.TempDir()
	for _, name := range []string{"rm", "cat"} { // only the first is checked
		if err := os.Symlink("/usr/bin/true", filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Sorted(slices.Values(append(ShimNames(), "rm")))
	for range 2 { // the second time there is nothing to do
		if err := WriteShims(dir, InsideShim, bin); err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for _, name := range []string{"stray", ".new.sudo"} { // left by somebody, and by a crash
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "sudo")); err != nil {
		t.Fatal(err)
	}
	if err := WriteShims(dir, "/elsewhere", bin); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "sudo")); target != "/elsewhere" || err != nil {
		t.Errorf("sudo leads to %q, %v", target, err)
	}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteBin(t *testing.T) {
	if _, err := os.Stat("/usr/bin/env"); err != nil {
		t.Skip("needs /usr/bin/env")
	}
	dir := filepath.Join(t.TempDir(), "bin")
	search := []string{"/usr/bin"}
	missing, err := NewPrograms(search).WriteBin(dir, []string{"env", "no-such", "su", "cat"})
	if err != nil || !slices.Equal(missing, []string{"no-such", "su"}) {
		t.Fatalf("missing %q, %v", missing, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"cat", "env"}) {
		t.Errorf("got %q", got)
	}
	programs, second := NewPrograms(search), filepath.Join(t.TempDir(), "second")
	for _, d := range []string{dir, second, dir} {
		if missing, err := programs.WriteBin(d, []string{"*", "no-such"}); err != nil || !slices.Equal(missing, []string{"no-such"}) {
			t.Fatalf("missing %q, %v", missing, err)
		}
	}
	all := names(t, dir)
	if got := names(t, second); !slices.Equal(got, all) {
		t.Errorf("the second PATH has %d programs, the first %d", len(got), len(all))
	}
	for _, n := range all {
		info, err := os.Stat(filepath.Join(dir, n))
		if err != nil || info.Mode()&os.ModeSetuid != 0 {
			t.Errorf("%s: %v %v", n, info, err)
		}
	}
	if len(all) < 20 || !slices.Contains(all, "env") || slices.Contains(all, "su") {
		t.Errorf("* gave %d programs: %q", len(all), all)
	}
	for _, bad := range []string{"", "a/b", "..", ".hidden", "a\x00"} {
		if _, err := NewPrograms(search).WriteBin(dir, []string{bad}); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("command %q: %v, want ErrInvalid", bad, err)
		}
	}
}

// A program with file capabilities is as good as a setuid one.
func TestMayLinkFileCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root: to set file capabilities")
		}
		t.Skip("needs root: to set file capabilities")
	}
	p, err := os.CreateTemp("/usr/local/bin", "chatd-shims-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(p.Name())
	if err := errors.Join(p.Chmod(0o755), p.Close()); err != nil {
		t.Fatal(err)
	}
	if ok, err := mayLink(p.Name()); !ok || err != nil {
		t.Errorf("plain: %t, %v", ok, err)
	}
	for bit, want := range map[os.FileMode]bool{os.ModeSetgid: true, os.ModeSetuid: false} {
		if err := os.Chmod(p.Name(), bit|0o755); err != nil {
			t.Fatal(err)
		}
		if ok, err := mayLink(p.Name()); ok != want || err != nil {
			t.Errorf("%v: %t, %v", bit, ok, err)
		}
	}
	if err := os.Chmod(p.Name(), 0o755); err != nil {
		t.Fatal(err)
	}
	setcap, err := exec.LookPath("setcap")
	if err != nil {
		t.Skip("needs setcap: package libcap2-bin")
	}
	if out, err := exec.Command(setcap, "cap_net_raw+ep", p.Name()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if ok, err := mayLink(p.Name()); ok || err != nil {
		t.Errorf("with capabilities: %t, %v", ok, err)
	}
}
