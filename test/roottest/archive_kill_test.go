package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// archiveConfig is a config file with a directory for archives.
func archiveConfig(t *testing.T, opt provision.Options) string {
	t.Helper()
	file := configFile(t, opt)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = fmt.Fprintf(f, "archive: {dir: %s, program: %s}\n", opt.Archives.Dir, opt.Archives.Program)
	must(t, errors.Join(err, f.Close()))
	return file
}

// archiveKilling is a daemon with archives that is killed again and again.
type archiveKilling struct {
	*daemon
	t      *testing.T // of all points: the daemon outlives the test of one
	opt    provision.Options
	config string
	orders failpoints
}

// again starts the daemon after it was killed.
func (k *archiveKilling) again(t *testing.T) {
	k.killed(t)
	k.daemon = startDaemonOf(k.t, k.opt, k.config, string(k.orders))
}

// whole fails the test unless the chat has its file.
func (k *archiveKilling) whole(t *testing.T, id chat.ID) {
	t.Helper()
	got, err := k.Run(t.Context(), id, chat.RunSpec{Command: "cat ~/kept"})
	if err != nil || got.Stdout != "kept\n" {
		t.Errorf("its file has %q, %v", got.Stdout, err)
	}
}

// TestArchiveKilled: whatever step of an archive or unarchive chatd-root is killed at, the chat is
// there whole, or its archive is, and nothing is half done; the same call then works.
func TestArchiveKilled(t *testing.T) {
	needsRoot(t)
	leaveOrphansToInit(t)
	opt := keepsArchives(t, options(t))
	k := &archiveKilling{t: t, opt: opt, config: archiveConfig(t, opt), orders: failpoints(filepath.Dir(opt.State))}
	k.daemon = startDaemonOf(t, opt, k.config, string(k.orders))
	for _, point := range []string{"archive.commit.before", "archive.commit.after", "reap.session.after", "reap.home.after"} {
		t.Run(point, func(t *testing.T) { k.inArchive(t, point) })
	}
	for _, point := range []string{"unarchive.record.after", "unarchive.home.after", "unarchive.ready.before"} {
		t.Run(point, func(t *testing.T) { k.inUnarchive(t, point) })
	}
	t.Run("while it packs", k.whilePacking)
}

// make is a new chat with a file.
func (k *archiveKilling) make(t *testing.T, external string) chat.Chat {
	t.Helper()
	c, _, err := k.Create(t.Context(), chat.Spec{ExternalID: external})
	must(t, err)
	_, err = k.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo kept >~/kept"})
	must(t, err)
	return c
}

// traceless fails the test if anything but archives is left of a chat.
func (k *archiveKilling) traceless(t *testing.T, c chat.Chat) {
	t.Helper()
	forgotten(t, k.opt, c)
	for _, left := range traces(t, k.opt, c) {
		if !strings.HasPrefix(left, "file "+k.opt.Archives.Dir) {
			t.Errorf("chat %s (uid %d) left behind %s", c.ID, c.UID, left)
		}
	}
}

// archivesOf are those of one chat.
func (k *archiveKilling) archivesOf(t *testing.T, id chat.ID) []chat.Archive {
	t.Helper()
	all, err := k.Archives(t.Context(), chat.ArchiveFilter{Chat: id})
	must(t, err)
	return all
}

func (k *archiveKilling) inArchive(t *testing.T, point string) {
	c := k.make(t, point)
	k.orders.order(t, point, 0)
	if _, err := k.Archive(t.Context(), c.ID, chat.ToArchive{}); err == nil {
		t.Fatalf("the failpoint %s was never reached", point)
	}
	k.again(t)
	all := k.archivesOf(t, c.ID)
	_, err := k.Get(t.Context(), c.ID)
	switch there := err == nil; {
	case !there && !errors.Is(err, chat.ErrNotFound):
		t.Fatal(err)
	case there && strings.HasPrefix(point, "reap."):
		t.Error("its reap was not finished")
	case there:
		k.whole(t, c.ID)
		if before := point == "archive.commit.before"; before == (len(all) == 1) {
			t.Errorf("archived are %+v", all)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // for another name
		_, err := k.Archive(t.Context(), c.ID, chat.ToArchive{})
		must(t, err)
	default:
		k.traceless(t, c)
	}
	all = k.archivesOf(t, c.ID)
	if len(all) == 0 {
		t.Fatal("it is neither there nor archived")
	}
	back, err := k.Unarchive(t.Context(), all[0].Name)
	must(t, err)
	k.whole(t, back.ID)
	k.reap(t, back)
}

// reap reaps a chat and removes its archives, of which nothing is left.
func (k *archiveKilling) reap(t *testing.T, c chat.Chat) {
	t.Helper()
	must(t, k.Reap(t.Context(), c.ID))
	k.traceless(t, c)
	for _, a := range k.archivesOf(t, c.ID) {
		must(t, k.RemoveArchive(t.Context(), a.Name))
	}
	if left := archiveFiles(t, k.opt); len(left) > 0 {
		t.Errorf("of archives there is %q", left)
	}
}

func (k *archiveKilling) inUnarchive(t *testing.T, point string) {
	c := k.make(t, point)
	a, err := k.Archive(t.Context(), c.ID, chat.ToArchive{})
	must(t, err)
	k.orders.order(t, point, 0)
	if _, err := k.Unarchive(t.Context(), a.Name); err == nil {
		t.Fatalf("the failpoint %s was never reached", point)
	}
	k.again(t)
	until(t, "what was begun is gone", func() bool {
		_, err := k.Get(t.Context(), c.ID)
		return errors.Is(err, chat.ErrNotFound)
	})
	if left, err := filepath.Glob(k.opt.Homes + "/[^.]*"); err != nil || len(left) > 0 {
		t.Errorf("there are homes: %v, %v", left, err)
	}
	host, err := k.Host(t.Context())
	must(t, err)
	for _, f := range host.Findings {
		if strings.Contains(f, string(c.ID)) {
			t.Errorf("it is found for ever: %s", f)
		}
	}
	back, err := k.Unarchive(t.Context(), a.Name)
	must(t, err)
	if back.UID <= c.UID+1 {
		t.Errorf("its uid %d was given to what was cut off, or to the chat before, %d", back.UID, c.UID)
	}
	k.whole(t, back.ID)
	k.reap(t, back)
}

// whilePacking kills chatd-root at a moment at which chatd-archive writes.
func (k *archiveKilling) whilePacking(t *testing.T) {
	c := k.make(t, "packing")
	_, err := k.Run(t.Context(), c.ID, chat.RunSpec{Command: "head -c 200M /dev/urandom >much"})
	must(t, err)
	ended := make(chan error)
	go func() {
		_, err := k.Archive(context.WithoutCancel(t.Context()), c.ID, chat.ToArchive{})
		ended <- err
	}()
	until(t, "it packs", func() bool {
		all, _ := filepath.Glob(filepath.Join(k.opt.Archives.Dir, "*.home.part"))
		if len(all) == 0 {
			return false
		}
		fi, err := os.Stat(all[0])
		return err == nil && fi.Size() > 1<<20
	})
	k.kill()
	if err := <-ended; err == nil {
		t.Error("the archive was done")
	}
	k.daemon = startDaemonOf(k.t, k.opt, k.config, string(k.orders))
	if left := pidsOf(c.UID); len(left) > 0 {
		t.Errorf("there are processes %v", left)
	}
	k.whole(t, c.ID)
	if all := k.archivesOf(t, c.ID); len(all) > 0 {
		t.Errorf("archived are %+v", all)
	}
	k.reap(t, c)
}
