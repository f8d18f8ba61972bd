//go:build e2e

package vagrant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const archivesDir = "/var/lib/chatd-archives"

// TestHostArchive: under systemd and PAM an archived chat is gone, its archive is root's alone, and
// it comes back under another uid with what it had.
func TestHostArchive(t *testing.T) {
	useProfiles(t)
	ctx := bounded(5 * time.Minute)
	c := create(t, "default")
	r := run(t, c.ID, "echo kept >f && ln f g && mkdir d && truncate -s 1G d/hole")
	must.True(t, r.Exit == 0, "%+v", r)
	a := must.Get(asker.Archive(ctx, c.ID, chat.ToArchive{}))(t)
	expect.Is(t, expect.Err(asker.Get(ctx, c.ID)), chat.ErrNotFound, "it is still there")
	leftNothing(t, []chat.Chat{c})
	expect.Equal(t, output(t, "stat", "-c", "%a %U %G", archivesDir), "700 root root", "the directory")
	must.Get(asker.VerifyArchive(ctx, a.Name))(t)
	back := must.Get(asker.Unarchive(ctx, a.Name))(t)
	r = run(t, c.ID, "cat f && stat -c %h g && stat -c %s d/hole")
	expect.True(t, back.UID != c.UID && r.Stdout == "kept\n2\n1073741824\n", "uid %d, %+v", back.UID, r)
	must.Do(t, asker.RemoveArchive(ctx, a.Name))
	left, err := os.ReadDir(archivesDir)
	expect.True(t, err == nil && len(left) == 0, "there is %v, %v", left, err)
}

// snapshots makes kept archives where homes have reflinks: of a snapshot while the chat goes on,
// under its quota; where that has no room for a clone the chat sleeps.
func snapshots(t *testing.T) {
	t.Helper()
	ctx := bounded(5 * time.Minute)
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
	a := must.Get(asker.Archive(ctx, c.ID, chat.ToArchive{Keep: true, StayAwake: true}))(t)
	expect.True(t, a.Snapshot && a.Slept == "", "the archive is %+v", a)
	at := beats()
	eventually(t, timeout, "its program goes on", func() bool { return beats() > at })
	expect.Equal(t, property(t, unitOf(c.ID), "MainPID"), began, "its session was %s and", began)
	units := output(t, "systemctl", "list-units", "--all", "--plain", "--no-legend",
		"chatd-????????????????.service")
	expect.True(t, strings.Count(units, "\n") <= 0, "units are left:\n%s", units)
	left, err := os.ReadDir(snapshotsDir)
	expect.True(t, err == nil && len(left) == 0, "clones are left: %v, %v", left, err)
	must.Do(t, reap(c.ID))
	must.Get(asker.Unarchive(ctx, a.Name))(t)
	r := run(t, c.ID, "cat f && test -s beats")
	expect.True(t, r.Stdout == "kept\n" && r.Exit == 0, "it came back with %+v", r)
	must.Do(t, asker.RemoveArchive(ctx, a.Name))
	must.Do(t, reap(c.ID))
	withoutRoom(t)
}

// withoutRoom: a chat that has more than half of its quota cannot be cloned.
func withoutRoom(t *testing.T) {
	t.Helper()
	ctx := bounded(5 * time.Minute)
	c := create(t, "narrow")
	r := run(t, c.ID, "touch $(seq 60) && head -c 5M /dev/zero >f")
	must.True(t, r.Exit == 0, "%+v", r)
	a := must.Get(asker.Archive(ctx, c.ID, chat.ToArchive{Keep: true}))(t)
	expect.True(t, !a.Snapshot && strings.Contains(a.Slept, "quota") && !get(t, c.ID).Awake,
		"with a full quota: %+v", a)
	must.Do(t, asker.RemoveArchive(ctx, a.Name))
	must.Do(t, reap(c.ID))
}
