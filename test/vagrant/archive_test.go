//go:build e2e

package vagrant

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

const archivesDir = "/var/lib/chatd-archives"

// TestHostArchive: under systemd and PAM an archived chat is gone, its archive is root's alone, and
// it comes back under another uid with what it had.
func TestHostArchive(t *testing.T) {
	useProfiles(t)
	ctx, cancel := bounded(5 * time.Minute)
	defer cancel()
	c := create(t, "default")
	if r := run(t, c.ID, "echo kept >f && ln f g && mkdir d && truncate -s 1G d/hole"); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	a, err := asker.Archive(ctx, c.ID, chat.ToArchive{})
	must(t, err)
	if _, err := asker.Get(ctx, c.ID); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
	leftNothing(t, []chat.Chat{c})
	if got := output(t, "stat", "-c", "%a %U %G", archivesDir); got != "700 root root" {
		t.Errorf("the directory is %s", got)
	}
	_, err = asker.VerifyArchive(ctx, a.Name)
	must(t, err)
	back, err := asker.Unarchive(ctx, a.Name)
	must(t, err)
	if r := run(t, c.ID, "cat f && stat -c %h g && stat -c %s d/hole"); back.UID == c.UID ||
		r.Stdout != "kept\n2\n1073741824\n" {
		t.Errorf("uid %d, %+v", back.UID, r)
	}
	must(t, asker.RemoveArchive(ctx, a.Name))
	if left, err := os.ReadDir(archivesDir); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// snapshots makes kept archives where homes have reflinks: of a snapshot while the chat goes on,
// under its quota; where that has no room for a clone the chat sleeps.
func snapshots(t *testing.T) {
	t.Helper()
	ctx, cancel := bounded(5 * time.Minute)
	defer cancel()
	c := create(t, "default")
	run(t, c.ID, "echo kept >f")
	input(t, c.ID, chat.Input{Text: "while sleep 0.1; do echo x >>beats; done", Enter: true})
	beats := func() int64 {
		fi, err := os.Stat(filepath.Join(c.Home, "beats"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	eventually(t, timeout, "its program writes", func() bool { return beats() > 0 })
	began := property(t, unitOf(c.ID), "MainPID")
	a, err := asker.Archive(ctx, c.ID, chat.ToArchive{Keep: true, StayAwake: true})
	must(t, err)
	if !a.Snapshot || a.Slept != "" {
		t.Errorf("the archive is %+v", a)
	}
	at := beats()
	eventually(t, timeout, "its program goes on", func() bool { return beats() > at })
	if now := property(t, unitOf(c.ID), "MainPID"); now != began {
		t.Errorf("its session was %s and is %s", began, now)
	}
	if units := output(t, "systemctl", "list-units", "--all", "--plain", "--no-legend",
		"chatd-????????????????.service"); strings.Count(units, "\n") > 0 {
		t.Errorf("units are left:\n%s", units)
	}
	left, err := os.ReadDir(snapshotsDir)
	if err != nil || len(left) > 0 {
		t.Errorf("clones are left: %v, %v", left, err)
	}
	must(t, reap(c.ID))
	_, err = asker.Unarchive(ctx, a.Name)
	must(t, err)
	if r := run(t, c.ID, "cat f && test -s beats"); r.Stdout != "kept\n" || r.Exit != 0 {
		t.Errorf("it came back with %+v", r)
	}
	must(t, asker.RemoveArchive(ctx, a.Name))
	must(t, reap(c.ID))
	withoutRoom(t)
}

// withoutRoom: a chat that has more than half of its quota cannot be cloned.
func withoutRoom(t *testing.T) {
	t.Helper()
	ctx, cancel := bounded(5 * time.Minute)
	defer cancel()
	c := create(t, "narrow")
	if r := run(t, c.ID, "touch $(seq 60) && head -c 5M /dev/zero >f"); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	a, err := asker.Archive(ctx, c.ID, chat.ToArchive{Keep: true})
	must(t, err)
	if a.Snapshot || !strings.Contains(a.Slept, "quota") || get(t, c.ID).Awake {
		t.Errorf("with a full quota: %+v", a)
	}
	must(t, asker.RemoveArchive(ctx, a.Name))
	must(t, reap(c.ID))
}
