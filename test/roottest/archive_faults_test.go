package roottest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestFailingUnarchiveSpendsNoUID: what is sure to fail is refused before the chat gets a uid. A
// bridge asks again with every message, and no uid is given twice.
func TestFailingUnarchiveSpendsNoUID(t *testing.T) {
	needsRoot(t)
	opt := keepsArchives(t, options(t))
	withKeys(t, opt, false)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := kept(t, m, "closed")
	a := archiveChat(t, m, c, false)
	before := create(t, m, "before", "default")
	for range 3 {
		expect.True(t, expect.Err(m.Unarchive(ctx, a.Name)) != nil, "unarchived without identities")
	}
	must.Do(t, os.Remove(filepath.Join(opt.Archives.Dir, string(a.Name)+".chat")))
	opt.Archives.Identities = opt.Archives.Recipients // any keys: they are not come to
	for range 3 {
		expect.True(t, expect.Err(m.Unarchive(ctx, a.Name)) != nil, "unarchived without a file")
	}
	if after := create(t, m, "after", "default"); after.UID != before.UID+1 {
		t.Errorf("the uids %d to %d are spent", before.UID+1, after.UID-1)
	}
}

// TestUnreadableArchiveCostsOneUID: an archive that is damaged at the same size, or is not for the
// identities, costs one uid however often it is asked for, and comes back once it is mended.
func TestUnreadableArchiveCostsOneUID(t *testing.T) {
	needsRoot(t)
	opt := keepsArchives(t, options(t))
	key := withKeys(t, opt, true)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := kept(t, m, "unreadable")
	a := archiveChat(t, m, c, false)
	last := create(t, m, "last", "default").UID
	home := filepath.Join(opt.Archives.Dir, string(a.Name)+".home")
	whole := must.Get(os.ReadFile(home))(t)
	tries := func(what string, spends uint32) {
		t.Helper()
		for range 3 {
			expect.Is(t, expect.Err(m.Unarchive(ctx, a.Name)), chat.ErrInvalid, "%s", what)
		}
		next := create(t, m, what, "default").UID
		expect.True(t, next == last+1+spends,
			"%s: %d uids are spent, want %d", what, next-last-1, spends)
		last = next
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	must.Do(t, os.WriteFile(home, damaged, 0o600))
	tries("damaged", 1)
	must.Do(t, os.WriteFile(home, whole, 0o600))
	other := must.Get(age.GenerateX25519Identity())(t)
	must.Do(t, os.WriteFile(opt.Archives.Identities, []byte(other.String()+"\n"), 0o600))
	tries("another identity", 1)
	must.Do(t, os.WriteFile(opt.Archives.Identities, []byte(key.String()+"\n"), 0o600))
	must.Get(m.Unarchive(ctx, a.Name))(t)
}

// TestCreateOfDamagedArchive: a create that asks for the archive of its conversation makes no empty
// chat, nor one of an older archive, where the newest cannot be used.
func TestCreateOfDamagedArchive(t *testing.T) {
	needsRoot(t)
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
	needsRoot(t)
	opt := keepsArchives(t, options(t))
	m := open(t, opt)
	ctx := stranger(t.Context())
	c, _, err := m.Create(ctx, chat.Spec{ExternalID: "greedy"})
	must.Do(t, err)
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
	needsRoot(t)
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
	needsRoot(t)
	opt := keepsArchives(t, options(t))
	opt.Archives.Expire = 24 * time.Hour
	m := open(t, opt)
	c := kept(t, m, "archived")
	must.Do(t, m.Close())
	made := time.Now().Add(365 * 24 * time.Hour)
	halfMade(t, opt, made)
	again := must.Get(openManager(t.Context(), opt))(t)
	*m = *again
	a := archiveChat(t, m, c, true)
	if earliest := made.Add(opt.Archives.Expire); a.ExpiresAt.Before(earliest) {
		t.Errorf("expires at %v, want %v or later", a.ExpiresAt, earliest)
	}
}
