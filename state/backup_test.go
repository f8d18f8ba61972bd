package state

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// unpacked puts an archive in place in a directory without a state, by tar(1).
func unpacked(t testing.TB, archive string, o Options) Options {
	t.Helper()
	o.Dir = t.TempDir()
	must.Run(t, exec.Command("tar", "-xpf", archive, "-C", o.Dir))
	return o
}

// TestBackupWhileWritten backs a store up that creates, reaps, audits and rotates as fast as it can:
// tar(1) unpacks each, and what it unpacked opens, verifies, and has every chat that was committed
// before.
func TestBackupWhileWritten(t *testing.T) {
	o := Options{Dir: t.TempDir(), AuditMax: 20_000, AuditKeep: 3}
	s := open(t, o)
	must.Do(t, expect.Err(s.EnsureBlock(chat.DefaultProfile)))
	made, end := writeOn(t, s)
	for range 12 {
		first := made.Load()
		b := must.Get(s.Backup(t.Context()))(t)
		got := must.Get(Open(unpacked(t, b.Path, o)))(t)
		verified(t, got)
		if got.Len() != b.Chats {
			t.Errorf("%d chats, the answer says %d", got.Len(), b.Chats)
		}
		for i := range first {
			_, err := got.Find("bridge", fmt.Sprint(i))
			expect.True(t, (err == nil) == (i%3 != 0), "chat %d, which was there before: %v", i, err)
		}
		expect.NoError(t, got.Close())
	}
	end()
	t.Logf("%d chats were made meanwhile", made.Load())
	verified(t, s)
}

// writeOn creates chats, reaps each third, audits, and flushes now and then. made is the number of
// the last chat.
func writeOn(t *testing.T, s *Store) (made *atomic.Int64, end func()) {
	made = new(atomic.Int64)
	stop, done := make(chan struct{}), make(chan struct{})
	end = sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r, _, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(i)}, event("create", "intent"))
			err = errors.Join(err, s.Audit(event("run", "intent")))
			if i%3 == 0 {
				err = errors.Join(err, s.SetPhase(r.ID, chat.Reaping, event("reap", "intent")),
					s.Forget(r.ID, event("reap", "done")))
			}
			if i%10 == 9 {
				err = errors.Join(err, s.Flush())
			}
			if err != nil {
				t.Error(err)
				return
			}
			made.Store(int64(i))
		}
	}()
	return made, end
}

// TestBackupIsOneTar: its names, its mode, that the next one replaces it, and that one without room
// leaves the former one and nothing else.
func TestBackupIsOneTar(t *testing.T) {
	s := fresh(t)
	a := admit(t, s, "a")
	b := must.Get(s.Backup(t.Context()))(t)
	out, err := exec.Command("tar", "-tf", b.Path).Output()
	want := "install.key\naudit.jsonl\nchatd.db\n"
	expect.True(t, err == nil && string(out) == want, "tar lists %q, %v, want %q", out, err, want)
	if fi, err := os.Lstat(b.Path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	admit(t, s, "b")
	if b, err = s.Backup(t.Context()); err != nil || b.Chats != 2 {
		t.Errorf("%+v, %v", b, err)
	}
	before := sums(t, s.opts.Dir)[backupName]
	defer func(was uint64) { leastFree = was }(leastFree)
	leastFree = 1 << 62
	_, err = s.Backup(t.Context())
	wantErr(t, "without room", err, chat.ErrBusy)
	leastFree = 0
	s.backingUp.Lock()
	_, err = s.Backup(t.Context())
	wantErr(t, "beside another", err, chat.ErrBusy)
	s.backingUp.Unlock()
	expect.True(t, sums(t, s.opts.Dir)[backupName] == before,
		"a backup that failed replaced the former one")
	if _, err := os.Lstat(filepath.Join(s.opts.Dir, backupName+".new")); !os.IsNotExist(err) {
		t.Errorf("its draft: %v", err)
	}
	got := open(t, unpacked(t, b.Path, s.opts))
	c, err := got.Find("bridge", "a")
	expect.True(t, err == nil && c.ID == a.ID && c.UID == a.UID, "%+v, %v, want %+v", c, err, a)
}

// TestBackupOverALaterLog: what is unpacked beside the log of later chats is refused.
func TestBackupOverALaterLog(t *testing.T) {
	s := fresh(t)
	admit(t, s, "a")
	b := must.Get(s.Backup(t.Context()))(t)
	later := admit(t, s, "b")
	must.Do(t, s.Flush())
	o := unpacked(t, b.Path, s.opts)
	log, err := os.ReadFile(filepath.Join(s.opts.Dir, auditName))
	if err == nil {
		err = os.WriteFile(filepath.Join(o.Dir, auditName), log, 0o600)
	}
	must.Do(t, err)
	_, err = Open(o)
	wantErr(t, "an older database", err, chat.ErrExists)
	if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("never gave uid %d", later.UID)) {
		t.Error(err)
	}
}
