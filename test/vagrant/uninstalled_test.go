//go:build e2e

package vagrant

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestUninstalled runs after the uninstall playbook: nothing of chatd is left.
// Each search must first find something that this test made.
func TestUninstalled(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		planted := "/etc/chatd-planted.conf"
		must.Do(t, os.WriteFile(planted, []byte("a line about chatd\n"), 0o644))
		defer os.Remove(planted)
		found := named("/")
		expect.True(t, found[planted], "the search does not find %s", planted)
		delete(found, planted)
		for path := range found {
			t.Errorf("%s is left", path)
		}
		mentions := mentioning("/etc")
		expect.True(t, mentions[planted], "the search does not find the text in %s", planted)
		delete(mentions, planted)
		for path := range mentions {
			if strings.HasSuffix(path, "-") {
				continue // passwd(5)'s tools keep the file of before
			}
			t.Errorf("%s mentions chatd", path)
		}
	})
	t.Run("units", func(t *testing.T) {
		for _, kind := range []string{"list-units", "list-unit-files"} {
			out := output(t, "systemctl", kind, "--all", "--no-legend", "--plain")
			expect.True(t, strings.Contains(out, "dbus.service"),
				"systemctl %s does not even list dbus.service", kind)
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "chatd") && !strings.HasPrefix(line, "chatd-ci") {
					t.Errorf("%s: %s", kind, line)
				}
			}
		}
		expect.True(t, missing("/sys/fs/cgroup/"+slice), "the cgroup of %s is left", slice)
	})
	t.Run("accounts", uninstalledAccounts)
	t.Run("kernel", uninstalledKernel)
}

// notOurs are folders of the machine's own, and those where packages, logs and
// this suite keep things of that name.
var notOurs = []string{"/proc", "/sys", "/dev", "/run/user", "/root/chatd-e2e", "/var/log", "/var/lib/chatd-ci", "/var/cache/chatd-ci", "/tmp", "/var/tmp", "/home", "/root"}

// named are the files with chatd in their name, or a chat's.
func named(root string) map[string]bool {
	found := map[string]bool{}
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if slices.Contains(notOurs, path) {
			return filepath.SkipDir
		}
		base := d.Name()
		if (strings.Contains(base, "chatd") || strings.HasPrefix(base, "chat-")) && !ours(base) {
			found[path] = true
			if d.IsDir() {
				return filepath.SkipDir
			}
		}
		return nil
	})
	return found
}

// ours are the names of the machine and of this suite.
func ours(base string) bool {
	return strings.HasPrefix(base, "chatd-ci") || strings.HasPrefix(base, "chatd-e2e") || strings.HasPrefix(base, "chatd-machine")
}

// mentioning are the files below dir that have the word in them.
func mentioning(dir string) map[string]bool {
	found := map[string]bool{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || ours(d.Name()) {
			return nil
		}
		b, err := os.ReadFile(path)
		text := strings.ReplaceAll(strings.ReplaceAll(string(b), "chatd-ci", ""), "chatd-e2e", "")
		if err == nil && strings.Contains(text, "chatd") {
			found[path] = true
		}
		return nil
	})
	return found
}

func uninstalledAccounts(t *testing.T) {
	for db, control := range map[string]string{"passwd": "root:", "group": "root:"} {
		out := output(t, "getent", db)
		expect.True(t, strings.Contains(out, control), "getent %s does not even list root", db)
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "chat-") || strings.Contains(line, "chatd-") && !strings.Contains(line, "chatd-ci") {
				t.Errorf("%s: %s", db, line)
			}
		}
	}
}

// uninstalledKernel: no rule, no hidepid.
func uninstalledKernel(t *testing.T) {
	shell(t, "iptables -N chatd-planted; nft add table inet chatd-planted")
	t.Cleanup(func() { shell(t, "iptables -X chatd-planted; nft delete table inet chatd-planted") })
	for _, save := range []string{"iptables-save", "ip6tables-save", "nft list ruleset"} {
		out := shell(t, save)
		if save != "ip6tables-save" && !strings.Contains(out, "chatd-planted") {
			t.Errorf("%s does not show what was planted", save)
		}
		for line := range strings.Lines(strings.ReplaceAll(out, "chatd-planted", "")) {
			expect.True(t, !strings.Contains(strings.ToLower(line), "chatd"), "%s: %s", save, line)
		}
	}
	if options := output(t, "findmnt", "-n", "-o", "OPTIONS", "/proc"); strings.Contains(options, "hidepid=") && !strings.Contains(options, "hidepid=off") {
		t.Errorf("/proc is still mounted %s", options)
	}
	expect.True(t, !strings.Contains(content(t, "/etc/fstab"), "hidepid"),
		"/etc/fstab still has hidepid")
}
