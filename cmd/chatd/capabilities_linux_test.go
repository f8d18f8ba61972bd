package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// containerCaps are what a container of Docker has by default.
const containerCaps = "+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap," +
	"+net_bind_service,+sys_chroot,+kill,+audit_write"

// within runs chatd with a bounding set. Its chatd-root is true(1), which ends well.
func within(t *testing.T, caps, verb string) (said string, exit int) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root")
		}
		t.Skip("SKIPPED: needs root, to take capabilities away")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "chatd")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--bounding-set="+caps, "--inh-caps=-all", filepath.Join(dir, "chatd"), "--socket",
		filepath.Join(dir, "none"), verb)
	cmd.Env = append(os.Environ(), rootEnv+"=/bin/true")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestDefaultContainer: without the capabilities that make walls, doctor and serve name each that is
// missing, no other, and the options that give them to a container.
func TestDefaultContainer(t *testing.T) {
	for _, verb := range []string{"doctor", "serve"} {
		said, exit := within(t, "-all,"+containerCaps, verb)
		for _, name := range []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"} {
			if !strings.Contains(said, "CAP_"+name) || !strings.Contains(said, "--cap-add="+name+" ") {
				t.Errorf("%s does not name %s", verb, name)
			}
		}
		if exit != 69 || strings.Contains(said, "CHOWN") || !strings.Contains(said, "--privileged") {
			t.Errorf("%s: exit %d: %s", verb, exit, said)
		}
	}
}

// TestEnoughCapabilities: with those that make walls, also where one of the others is missing,
// chatd-root is asked.
func TestEnoughCapabilities(t *testing.T) {
	for _, caps := range []string{"-net_raw", "-all,+sys_admin,+net_admin," + containerCaps} {
		if said, exit := within(t, caps, "serve"); exit != 0 {
			t.Errorf("serve with %s: exit %d: %s", caps, exit, said)
		}
		if said, _ := within(t, caps, "doctor"); !strings.Contains(said, "cannot read what chatd-root found") {
			t.Errorf("doctor with %s: %s", caps, said)
		}
	}
}
