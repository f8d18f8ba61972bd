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
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// archiveConfig is a config file with a directory for archives.
func archiveConfig(t *testing.T, opt provision.Options) string {
	t.Helper()
	file := configFile(t, opt)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = fmt.Fprintf(f, "archive: {dir: %s, program: %s}\n", opt.Archives.Dir, opt.Archives.Program)
	must.Do(t, errors.Join(err, f.Close()))
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
	expect.True(t, err == nil && got.Stdout == "kept\n", "its file has %q, %v", got.Stdout, err)
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
	must.Do(t, err)
	must.Get(k.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo kept >~/kept"}))(t)
	return c
}

// traceless fails the test if anything but archives is left of a chat.
func (k *archiveKilling) traceless(t *testing.T, c chat.Chat) {
	t.Helper()
	forgotten(t, k.opt, c)
	for _, left := range traces(t, k.opt, c) {
		expect.True(t, strings.HasPrefix(left, "file "+k.opt.Archives.Dir),
			"chat %s (uid %d) left behind %s", c.ID, c.UID, left)
	}
}

// archivesOf are those of one chat.
func (k *archiveKilling) archivesOf(t *testing.T, id chat.ID) []chat.Archive {
	t.Helper()
	all := must.Get(k.Archives(t.Context(), chat.ArchiveFilter{Chat: id}))(t)
	return all
}

func (k *archiveKilling) inArchive(t *testing.T, point string) {
	c := k.make(t, point)
	k.orders.order(t, point, 0)
	must.True(t, expect.Err(k.Archive(t.Context(), c.ID, chat.ToArchive{})) != nil,
		"the failpoint %s was never reached", point)
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
		expect.True(t, (point == "archive.commit.before") != (len(all) == 1), "archived are %+v", all)
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // for another name
		must.Get(k.Archive(t.Context(), c.ID, chat.ToArchive{}))(t)
	default:
		k.traceless(t, c)
	}
	all = k.archivesOf(t, c.ID)
	must.True(t, len(all) != 0, "it is neither there nor archived")
	back := must.Get(k.Unarchive(t.Context(), all[0].Name))(t)
	k.whole(t, back.ID)
	k.reap(t, back)
}

// reap reaps a chat and removes its archives, of which nothing is left.
func (k *archiveKilling) reap(t *testing.T, c chat.Chat) {
	t.Helper()
	must.Do(t, k.Reap(t.Context(), c.ID))
	k.traceless(t, c)
	for _, a := range k.archivesOf(t, c.ID) {
		must.Do(t, k.RemoveArchive(t.Context(), a.Name))
	}
	if left := archiveFiles(t, k.opt); len(left) > 0 {
		t.Errorf("of archives there is %q", left)
	}
}

func (k *archiveKilling) inUnarchive(t *testing.T, point string) {
	c := k.make(t, point)
	a := must.Get(k.Archive(t.Context(), c.ID, chat.ToArchive{}))(t)
	k.orders.order(t, point, 0)
	must.True(t, expect.Err(k.Unarchive(t.Context(), a.Name)) != nil,
		"the failpoint %s was never reached", point)
	k.again(t)
	until(t, "what was begun is gone", func() bool {
		_, err := k.Get(t.Context(), c.ID)
		return errors.Is(err, chat.ErrNotFound)
	})
	if left, err := filepath.Glob(k.opt.Homes + "/[^.]*"); err != nil || len(left) > 0 {
		t.Errorf("there are homes: %v, %v", left, err)
	}
	host := must.Get(k.Host(t.Context()))(t)
	for _, f := range host.Findings {
		expect.True(t, !strings.Contains(f, string(c.ID)), "it is found for ever: %s", f)
	}
	back := must.Get(k.Unarchive(t.Context(), a.Name))(t)
	expect.True(t, back.UID > c.UID+1,
		"its uid %d was given to what was cut off, or to the chat before, %d", back.UID, c.UID)
	k.whole(t, back.ID)
	k.reap(t, back)
}

// whilePacking kills chatd-root at a moment at which chatd-archive writes.
func (k *archiveKilling) whilePacking(t *testing.T) {
	c := k.make(t, "packing")
	must.Get(k.Run(t.Context(), c.ID, chat.RunSpec{Command: "head -c 200M /dev/urandom >much"}))(t)
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
	expect.True(t, <-ended != nil, "the archive was done")
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
