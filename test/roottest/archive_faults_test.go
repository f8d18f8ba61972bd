package roottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestUnarchiveFails: what cannot be unarchived whole is not there at all, and its archive stays. What
// is sure to fail is refused before the chat gets a uid; what is found out later costs one, however
// often it is asked for: a bridge asks again with every message, and no uid is given twice. Once it
// is mended, it comes back.
func TestUnarchiveFails(t *testing.T) {
	opt := keepsArchives(t, options(t))
	key := withKeys(t, opt, true)
	identities := opt.Archives.Identities
	m := open(t, opt)
	ctx := operator(t.Context())
	c := kept(t, m, "lost")
	a := archiveChat(t, m, c, false)
	last := create(t, m, "before", "default").UID
	file := filepath.Join(opt.Archives.Dir, string(a.Name))
	home, chatFile := must.Get(os.ReadFile(file+".home"))(t), must.Get(os.ReadFile(file+".chat"))(t)
	damaged := bytes.Clone(home)
	damaged[len(damaged)/2] ^= 1
	other := must.Get(age.GenerateX25519Identity())(t)
	for _, c := range []struct {
		what, identities, want string
		key                    *age.X25519Identity
		home, chat             []byte
		spends                 uint32
	}{
		{"without identities", "", "archive.identities", key, home, chatFile, 0},
		{"damaged at the same size", identities, "", key, damaged, chatFile, 1},
		{"with another identity", identities, "identit", other, home, chatFile, 1},
		{"cut off", identities, "not a file of", key, home[:10], chatFile, 0},
		{"without a file", identities, "", key, home, nil, 0},
	} {
		opt.Archives.Identities = c.identities
		must.Do(t, errors.Join(os.WriteFile(identities, []byte(c.key.String()), 0o600), os.WriteFile(file+".home", c.home, 0o600)))
		if c.chat == nil {
			must.Do(t, os.Remove(file+".chat"))
		}
		for range 3 {
			_, err := m.Unarchive(ctx, a.Name)
			expect.True(t, err != nil && strings.Contains(err.Error(), c.want) && (c.chat == nil || errors.Is(err, chat.ErrInvalid)),
				"%s: %v, want %q", c.what, err, c.want)
			expect.Is(t, expect.Err(m.Get(ctx, a.Chat)), chat.ErrNotFound, "%s: the chat is there", c.what)
		}
		left := archiveFiles(t, opt)
		expect.True(t, len(left) == 3 || c.chat == nil && len(left) == 2, "%s: the archive has %q", c.what, left)
		next := create(t, m, c.what, "default").UID
		expect.Equal(t, next-last-1, c.spends, "%s: uids that are spent", c.what)
		last = next
	}
	must.Do(t, os.WriteFile(file+".chat", chatFile, 0o600))
	must.Get(m.Unarchive(ctx, a.Name))(t)
}

// TestCreateOfDamagedArchive: a create that asks for the archive of its conversation makes no empty
// chat, nor one of an older archive, where the newest cannot be used.
func TestCreateOfDamagedArchive(t *testing.T) {
	opt := keepsArchives(t, options(t))
	m := open(t, opt)
	c := kept(t, m, "damaged")
	a := archiveChat(t, m, c, false)
	must.Do(t, os.Truncate(filepath.Join(opt.Archives.Dir, string(a.Name)+".json"), 100))
	ctx := operator(t.Context())
	_, _, err := m.Create(ctx, chat.Spec{ExternalID: "damaged", Profile: "default", Unarchive: true})
	expect.Is(t, err, chat.ErrInvalid, "")
	expect.Is(t, expect.Err(m.Get(ctx, c.ID)), chat.ErrNotFound, "there is a chat")
}

// TestKeptArchivesAreBounded: calls of a bridge that come together keep no more archives of a chat
// than those that come one after the other.
func TestKeptArchivesAreBounded(t *testing.T) {
	opt := keepsArchives(t, options(t))
	m := open(t, opt)
	ctx := asBridge(t.Context(), "stranger")
	c := must.First(m.Create(ctx, chat.Spec{ExternalID: "greedy"}))(t)
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() { _, _ = m.Archive(ctx, c.ID, chat.ToArchive{Keep: true}) }) // some fail
	}
	calls.Wait()
	all, err := m.Archives(ctx, chat.ArchiveFilter{Chat: c.ID})
	expect.True(t, err == nil && len(all) != 0 && len(all) <= 3,
		"%d archives are kept, %v", len(all), err)
}

// gated has the operator's command wait while the returned file is there.
func gated(t *testing.T, opt provision.Options) (gate string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "chatd-gate-") // its user passes there
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chmod(dir, 0o755))
	gate = filepath.Join(dir, "gate")
	opt.Archives.Command = []string{"/bin/sh", "-c",
		"cat >/dev/null; while test -e " + gate + "; do sleep 0.1; done"}
	opt.Archives.UID, opt.Archives.GID = 60998, 60998
	return gate
}

// TestWhileArchived: an archive that takes hours holds up no reload of rules for other chats, no
// older archive of its chat is removed beside it, and none is read as the second of its owner.
func TestWhileArchived(t *testing.T) {
	opt := keepsArchives(t, options(t))
	gate := gated(t, opt)
	m := open(t, opt)
	ctx := operator(t.Context())
	one := kept(t, m, "one")
	a := archiveChat(t, m, one, true)
	must.Do(t, os.WriteFile(gate, nil, 0o644))
	var calls sync.WaitGroup
	calls.Go(func() {
		expect.Is(t, expect.Err(m.Archive(ctx, one.ID, chat.ToArchive{Keep: true})), nil,
			"%s", one.ExternalID)
	})
	until(t, "the command has begun", func() bool { return len(archiveFiles(t, opt)) == 1+3 })
	err := within(t, "a reload", func() error { return m.Reload(ctx, nil) })
	expect.True(t, err == nil, "a reload: %v", err)
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	expect.Is(t, m.RemoveArchive(brief, a.Name), chat.ErrBusy, "removed beside an archive")
	expect.Is(t, expect.Err(m.VerifyArchive(brief, a.Name)), chat.ErrBusy,
		"read as the second of its owner")
	must.Do(t, os.Remove(gate))
	calls.Wait()
	must.Do(t, m.RemoveArchive(ctx, a.Name))
}

// TestExpiryFollowsRecords: an archive is as young as the youngest chat, and expires no earlier by a
// clock that is behind.
func TestExpiryFollowsRecords(t *testing.T) {
	opt := keepsArchives(t, options(t))
	opt.Archives.Expire = 24 * time.Hour
	m := open(t, opt)
	c := kept(t, m, "archived")
	must.Do(t, m.Close())
	made := time.Now().Add(365 * 24 * time.Hour)
	halfMade(t, opt, made)
	*m = *must.Get(openManager(t.Context(), opt))(t)
	a := archiveChat(t, m, c, true)
	earliest := made.Add(opt.Archives.Expire)
	expect.True(t, !a.ExpiresAt.Before(earliest), "expires at %v, want %v or later", a.ExpiresAt, earliest)
}

// archiveConfig is a config file with a directory for archives.
func archiveConfig(t *testing.T, opt provision.Options, more ...string) string {
	t.Helper()
	return configFile(t, opt, append(more, fmt.Sprintf("archive: {dir: %s, program: %s}\n", opt.Archives.Dir, opt.Archives.Program))...)
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
	c := must.First(k.Create(t.Context(), chat.Spec{ExternalID: external}))(t)
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
	return must.Get(k.Archives(t.Context(), chat.ArchiveFilter{Chat: id}))(t)
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
	left := archiveFiles(t, k.opt)
	expect.True(t, len(left) == 0, "of archives there is %q", left)
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
	left, err := filepath.Glob(k.opt.Homes + "/[^.]*")
	expect.True(t, err == nil && len(left) == 0, "there are homes: %v, %v", left, err)
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
	must.Get(k.Run(t.Context(), c.ID, chat.RunSpec{Command: "head -c 60M /dev/urandom >much"}))(t)
	ended := going(func() error {
		return expect.Err(k.Archive(context.WithoutCancel(t.Context()), c.ID, chat.ToArchive{}))
	})
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
	left := pidsOf(c.UID)
	expect.True(t, len(left) == 0, "there are processes %v", left)
	k.whole(t, c.ID)
	all := k.archivesOf(t, c.ID)
	expect.True(t, len(all) == 0, "archived are %+v", all)
	k.reap(t, c)
}
