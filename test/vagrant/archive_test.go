//go:build e2e

package vagrant

import (
	"errors"
	"os"
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
