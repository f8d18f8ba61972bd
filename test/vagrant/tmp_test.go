//go:build e2e

package vagrant

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// privateDirs are the directories that pam_namespace replaces, and where the
// instances lie.
var privateDirs = map[string]string{"/tmp": stateDir + "/tmp", "/var/tmp": stateDir + "/vartmp"}

// TestHostTmp looks from inside two sessions: each has a /tmp and a /var/tmp of
// its own, which is its instance and not the host's.
func TestHostTmp(t *testing.T) {
	a, b := create(t, ""), create(t, "")
	for dir, parent := range privateDirs {
		t.Run(dir, func(t *testing.T) {
			outside := must.Get(os.CreateTemp(dir, "chatd-e2e-outside-"))(t)
			t.Cleanup(func() { _ = os.Remove(outside.Name()) })
			mine := fmt.Sprintf("%s/chatd-e2e-%s", dir, a.ID)
			said(t, a.ID, "echo secret > "+mine+" && cat "+mine)
			if got := run(t, b.ID, "cat "+mine); got.Exit == 0 {
				t.Errorf("another chat reads %s", mine)
			}
			if got := run(t, a.ID, "cat "+outside.Name()); got.Exit == 0 {
				t.Errorf("the chat reads the host's %s", outside.Name())
			}
			if _, err := os.Lstat(mine); !os.IsNotExist(err) {
				t.Errorf("the chat's file is in the host's %s: %v", dir, err)
			}
			instance := filepath.Join(parent, a.User, filepath.Base(mine))
			expect.Equal(t, content(t, instance), "secret", "%s has", instance)
		})
	}
	t.Run("shm", func(t *testing.T) { checkShm(t, a, b) })
}

// checkShm: /dev/shm is a small tmpfs of the session's own.
func checkShm(t *testing.T, a, b chat.Chat) {
	expect.Equal(t, said(t, a.ID, "stat -f -c %T /dev/shm; echo x > /dev/shm/e2e"), "tmpfs", "/dev/shm")
	expect.True(t, run(t, b.ID, "cat /dev/shm/e2e").Exit != 0, "another chat reads /dev/shm")
	if _, err := os.Lstat("/dev/shm/e2e"); !os.IsNotExist(err) {
		t.Errorf("it is the host's: %v", err)
	}
	r := run(t, a.ID, "head -c 40m /dev/zero > /dev/shm/big")
	expect.True(t, r.Exit != 0 && strings.Contains(r.Stderr, "No space left"),
		"40 MiB fit into /dev/shm: %+v", r)
}

// TestHostPAMNamespace: the mounts come from the session's PAM stack, before
// bubblewrap: the namespace that the unit's main process is in has them.
func TestHostPAMNamespace(t *testing.T) {
	c := create(t, "")
	mounts := content(t, "/proc", sessionOf(t, c.ID).pid, "mountinfo")
	for dir, parent := range privateDirs {
		// The fields are: id parent device root mountpoint …
		if want := strings.TrimPrefix(parent, mountOf(t, parent)) + "/" + c.User + " " + dir + " "; !strings.Contains(mounts, want) {
			t.Errorf("no mount of %s/%s on %s in the session's namespace:\n%s", parent, c.User, dir, mounts)
		}
	}
	if own := content(t, "/proc/self/mountinfo"); strings.Contains(own, c.User) {
		t.Errorf("the mounts reach the host:\n%s", own)
	}
	expect.True(t, strings.Contains(content(t, "/etc/pam.d/chatd"), "pam_namespace.so"),
		"/etc/pam.d/chatd does not call pam_namespace")
}

// mountOf is the mount point that path is below, empty for the root: mountinfo
// counts a root from there.
func mountOf(t testing.TB, path string) string {
	return strings.TrimSuffix(output(t, "findmnt", "-n", "-o", "TARGET", "--target", path), "/")
}

// TestHostTmpParents: pam_namespace wants the parents root's and mode 000.
// Somebody opens one; the next session has it right again.
func TestHostTmpParents(t *testing.T) {
	for _, parent := range privateDirs {
		checkClosed(t, parent)
		must.Do(t, os.Chmod(parent, 0o755))
	}
	c := create(t, "")
	for dir, parent := range privateDirs {
		checkClosed(t, parent)
		said(t, c.ID, "echo x > "+dir+"/e2e-here")
		content(t, parent, c.User, "e2e-here")
	}
}

func checkClosed(t testing.TB, dir string) {
	t.Helper()
	if got := output(t, "stat", "-c", "%a %u %g", dir); got != "0 0 0" {
		t.Errorf("%s is %s (mode, uid, gid), want 0 0 0", dir, got)
	}
}
