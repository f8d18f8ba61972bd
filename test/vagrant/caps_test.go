//go:build e2e

package vagrant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const capDropIn = "/run/systemd/system/" + service + ".d/90-e2e.conf"

// TestHostCapabilities takes each capability that chatd.service has away in turn:
// something of a chat's life must fail without it, or it is one too many.
func TestHostCapabilities(t *testing.T) {
	have := strings.Fields(property(t, service, "CapabilityBoundingSet"))
	must.True(t, len(have) != 0, "chatd.service has no capability: nothing can be tried")
	useProfiles(t)
	t.Cleanup(func() {
		_ = os.Remove(capDropIn)
		output(t, "systemctl", "daemon-reload")
		restart(t)
		for _, c := range all(t) {
			if strings.HasPrefix(c.ExternalID, "e2e:TestHostCapabilities") {
				must.Do(t, reap(c.ID))
			}
		}
		expect.NoError(t, healthy())
	})
	err := lifeWith(t, "")
	must.True(t, err == nil, "with every capability: %v", err)
	for i, name := range have {
		if testing.Short() && i%3 > 0 {
			continue // a restart of chatd for each takes minutes on an emulated machine
		}
		name = strings.ToUpper(name)
		t.Run(name, func(t *testing.T) {
			err := lifeWith(t, name)
			expect.True(t, err != nil, "nothing fails without %s", name)
			t.Logf("without %s: %v", name, err)
		})
	}
}

// lifeWith restarts chatd without a capability and goes through a chat's life; the
// error names the first act that failed.
func lifeWith(t *testing.T, without string) error {
	must.Do(t, os.MkdirAll(capDropIn[:strings.LastIndex(capDropIn, "/")], 0o755))
	text := "[Service]\nRestart=no\n"
	if without != "" {
		text += "CapabilityBoundingSet=~" + without + "\n"
	}
	must.Do(t, os.WriteFile(capDropIn, []byte(text), 0o644))
	output(t, "systemctl", "daemon-reload")
	if err := tryRestart(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	c, err := ask(chat.Spec{ExternalID: external(t)})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	ctx := bounded(timeout)
	for _, act := range []struct {
		name string
		do   func() error
	}{
		{"run", func() error { return wantRun(c.ID, "echo alive", "alive") }},
		{"end a run", func() error { return endRun(c.ID) }},
		{"sleep", func() error { _, err := asker.Sleep(ctx, c.ID); return err }},
		{"open a home that its chat closed", func() error { return os.Chmod(c.Home, 0o755) }},
		{"wake", func() error { _, err := asker.Wake(ctx, c.ID); return err }},
		{"a file in the home", func() error { return wantRun(c.ID, "mkdir -m 0 ~/closed && echo made", "made") }},
		{"wake a chat with a network of its own", func() error { return ownNetwork(t) }},
		{"end what runs outside the session", func() error { return reapWithStray(ctx, c) }},
		{"doctor", healthy},
	} {
		if err := act.do(); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
	}
	return nil
}

// ownNetwork makes and reaps a chat with a network of its own.
func ownNetwork(t *testing.T) error {
	c, err := ask(chat.Spec{ExternalID: external(t) + " own", Profile: "own"})
	if err != nil {
		return err
	}
	return errors.Join(wantRun(c.ID, "echo alive", "alive"), reap(c.ID))
}

// reapWithStray reaps a chat of whose uid a process runs outside its session.
func reapWithStray(ctx context.Context, c chat.Chat) error {
	uid := fmt.Sprint(c.UID)
	stray := exec.Command("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "sleep", "600")
	if err := stray.Start(); err != nil {
		return fmt.Errorf("cannot start it: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	err := asker.Reap(ctx, c.ID)
	select {
	case <-ended:
		return err
	case <-time.After(time.Minute):
		return errors.Join(err, fmt.Errorf("process %d of the reaped chat lives", stray.Process.Pid), stray.Process.Kill())
	}
}

func wantRun(id chat.ID, command, want string) error {
	r, err := asker.Run(bounded(timeout), id, chat.RunSpec{Command: command})
	if err == nil && strings.TrimSpace(r.Stdout) != want {
		err = fmt.Errorf("it ended with %+v", r)
	}
	return err
}

// endRun wants chatd to end a run and what it forked, when its time is up.
func endRun(id chat.ID) error {
	r, err := asker.Run(bounded(timeout), id, chat.RunSpec{Command: "sleep 100 & sleep 100", Timeout: chat.Duration(2 * time.Second)})
	if err == nil && !r.TimedOut {
		err = fmt.Errorf("it ended with %+v", r)
	}
	return err
}

// healthy wants doctor to miss nothing, to have no finding and to know no layer that is off.
func healthy() error {
	h, err := asker.Host(bounded(timeout))
	if err == nil && len(h.Missing)+len(h.Findings) > 0 {
		err = fmt.Errorf("missing %v, findings %q", h.Missing, h.Findings)
	}
	for _, l := range h.Layers {
		if l.State == chat.LayerOff {
			err = errors.Join(err, fmt.Errorf("layer %s is off: %s", l.Name, l.Probe))
		}
	}
	return err
}

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
		f := strings.Fields(line)
		expect.True(t, f[0] == fmt.Sprint(a.UID), "the chat sees %s", line)
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
