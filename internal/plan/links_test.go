package plan

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteShims(t *testing.T) {
	dir, bin := filepath.Join(t.TempDir(), "shims"), t.TempDir()
	for _, name := range []string{"rm", "cat"} { // only the first is checked
		must.Do(t, os.Symlink("/usr/bin/true", filepath.Join(bin, name)))
	}
	want := slices.Sorted(slices.Values(append(ShimNames(), "rm")))
	for range 2 { // the second time there is nothing to do
		must.Do(t, WriteShims(dir, InsideShim, bin))
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for _, name := range []string{"stray", ".new.sudo"} { // left by somebody, and by a crash
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	must.Do(t, os.Remove(filepath.Join(dir, "sudo")))
	must.Do(t, WriteShims(dir, "/elsewhere", bin))
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
	must.True(t, err == nil && slices.Equal(missing, []string{"no-such", "su"}),
		"missing %q, %v", missing, err)
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
		expect.True(t, err == nil && info.Mode()&os.ModeSetuid == 0, "%s: %v %v", n, info, err)
	}
	expect.True(t, len(all) >= 20 && slices.Contains(all, "env") && !slices.Contains(all, "su"),
		"* gave %d programs: %q", len(all), all)
	for _, bad := range []string{"", "a/b", "..", ".hidden", "a\x00"} {
		if _, err := NewPrograms(search).WriteBin(dir, []string{bad}); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("command %q: %v, want ErrInvalid", bad, err)
		}
	}
}

// A program with file capabilities is as good as a setuid one.
func TestMayLinkFileCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root: to set file capabilities")
		t.Skip("needs root: to set file capabilities")
	}
	p := must.Get(os.CreateTemp("/usr/local/bin", "chatd-shims-test-"))(t)
	defer os.Remove(p.Name())
	must.Do(t, errors.Join(p.Chmod(0o755), p.Close()))
	if ok, err := mayLink(p.Name()); !ok || err != nil {
		t.Errorf("plain: %t, %v", ok, err)
	}
	for bit, want := range map[os.FileMode]bool{os.ModeSetgid: true, os.ModeSetuid: false} {
		must.Do(t, os.Chmod(p.Name(), bit|0o755))
		if ok, err := mayLink(p.Name()); ok != want || err != nil {
			t.Errorf("%v: %t, %v", bit, ok, err)
		}
	}
	must.Do(t, os.Chmod(p.Name(), 0o755))
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
