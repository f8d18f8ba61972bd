package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestInsideNamesNothing: what a run reads of itself names neither the host's cgroups nor
// where chatd keeps its profiles and programs.
func TestInsideNamesNothing(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a := inmateOf(t, m, "inside", "default")
	cgroups := a.sh(t, "cat /proc/self/cgroup")
	if strings.Contains(cgroups, opt.Cgroup) || strings.Contains(cgroups, string(a.ID)) || cgroups == "" {
		t.Errorf("a run is in\n%s", cgroups)
	}
	mounts := a.sh(t, "cat /proc/self/mountinfo")
	for _, dir := range []string{"profiles", "bin"} {
		if p := filepath.Join(opt.State, dir); strings.Contains(mounts, p) {
			t.Errorf("mountinfo names %s:\n%s", p, mounts)
		}
	}
}

// TestSettingsInside: a session has the settings that programs of the host find in /etc,
// and cannot write to them.
func TestSettingsInside(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "settings", "default")
	found := 0
	for _, pattern := range []string{"/etc/fonts/fonts.conf", "/etc/java-*/security/java.security", "/etc/chromium.d/*", "/etc/xml/catalog", "/etc/ssl/openssl.cnf", "/etc/mime.types"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if fi, err := os.Stat(f); err != nil || fi.Mode().Perm()&0o004 == 0 {
				continue
			}
			found++
			outcomes(t, "read "+f, strings.Fields(a.try(t, "read", f))[0], "ok")
			outcomes(t, "write "+f, a.try(t, "open-write", f), "EROFS EACCES")
		}
	}
	expect.True(t, found != 0,
		"this host has no settings to look at: want at least /etc/ssl/openssl.cnf")
	if _, err := os.Stat("/usr/bin/java"); err == nil {
		if got := a.sh(t, "java -XX:+UseSerialGC -Xmx32m -version 2>&1"); !strings.Contains(got, "version") {
			t.Errorf("java says %s", got)
		}
	}
}
