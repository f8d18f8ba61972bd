//go:build e2e

package vagrant

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestHostHidepid: an ordinary user sees no process but its own, on the host,
// not only in a chat's namespace; the group of hidepid sees them.
func TestHostHidepid(t *testing.T) {
	u := newUser(t)
	see := func(args ...string) string {
		out, _ := try(timeout, "setpriv", append(args, "ps", "-e", "-o", "pid=,user=")...)
		return out
	}
	plain := see("--reuid", u.name, "--regid", u.name, "--clear-groups")
	var others []string
	for line := range strings.Lines(plain) {
		if f := strings.Fields(line); len(f) == 2 && f[1] != u.name && f[1] != u.uid {
			others = append(others, f[0]+" of "+f[1])
		}
	}
	if len(others) > 0 {
		t.Errorf("user %s sees %d processes of others, the first is %s", u.name, len(others), others[0])
	}
	expect.True(t, strings.Contains(plain, u.name), "the user does not even see its own ps: %q", plain)
	gid := output(t, "sh", "-c", "getent group chatd-proc | cut -d: -f3")
	if member := see("--reuid", u.name, "--regid", u.name, "--groups", gid); !strings.Contains(member, " root") {
		t.Errorf("a member of chatd-proc does not see root's processes: %q", member)
	}
	out, err := try(timeout, "setpriv", "--reuid", u.name, "--regid", u.name, "--clear-groups", "ls", "-d", "/proc/1")
	expect.True(t, err != nil, "the user sees /proc/1: %s", out)
	if mount := output(t, "findmnt", "-n", "-o", "OPTIONS", "/proc"); !strings.Contains(mount, "hidepid=invisible") ||
		!strings.Contains(mount, "gid="+gid) || !strings.Contains(mount, "nosuid") || !strings.Contains(mount, "noexec") {
		t.Errorf("/proc is mounted %s", mount)
	}
}

// TestHostProcInside: a chat sees its own processes only, by its namespace.
func TestHostProcInside(t *testing.T) {
	a, b := create(t, ""), create(t, "")
	said(t, b.ID, "true")
	for line := range strings.Lines(said(t, a.ID, "ps -e -o uid=,comm=")) {
		if f := strings.Fields(line); f[0] != fmt.Sprint(a.UID) {
			t.Errorf("the chat sees %s", line)
		}
	}
	h := host(t)
	for _, l := range h.Layers {
		if l.Name != chat.LayerProc {
			continue
		}
		shown := l.By + " " + l.Probe
		if l.State != chat.LayerOn || !strings.Contains(shown, "hidepid") || !strings.Contains(shown, "namespace") {
			t.Errorf("doctor does not say which of session and host holds: %+v", l)
		}
	}
}

// TestHostServices: what hidepid is known to break works: polkit, logind, a
// user's own systemd.
func TestHostServices(t *testing.T) {
	u := newUser(t)
	t.Run("polkit", func(t *testing.T) {
		const action = "org.freedesktop.systemd1.manage-units"
		_, err := try(timeout, "pkcheck", "--action-id", action, "--process", fmt.Sprint(os.Getpid()))
		expect.True(t, err == nil, "polkit does not know root: %v", err)
		// The user's own process: polkit must find out who it is, and then say no.
		out, err := try(timeout, "setpriv", "--reuid", u.name, "--regid", u.name, "--clear-groups",
			"sh", "-c", "pkcheck --action-id "+action+" --process $$")
		out = strings.ToLower(out)
		if err == nil || !strings.Contains(out, "not authorized") && !strings.Contains(out, "requires authentication") {
			t.Errorf("polkit on an ordinary user: %v, want that it asks who they are", err)
		}
	})
	t.Run("logind", func(t *testing.T) {
		out := u.ssh(t, "loginctl list-sessions --no-legend; systemctl --user is-system-running --wait; echo $XDG_SESSION_ID")
		expect.True(t, strings.Contains(out, u.name), "no session of the user: %s", out)
		if !strings.Contains(out, "running") && !strings.Contains(out, "degraded") {
			t.Errorf("no systemd of the user's own: %s", out)
		}
	})
}
