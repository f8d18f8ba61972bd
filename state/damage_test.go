package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"go.etcd.io/bbolt"
)

// TestDamagedDatabase: a database that is cut off at any length, or whose pages hold something
// else, is refused with an error that says what to do; chatd does not crash.
func TestDamagedDatabase(t *testing.T) {
	s := fresh(t)
	for i := range 200 {
		admit(t, s, fmt.Sprint(i))
	}
	must.Do(t, s.Close())
	path := filepath.Join(s.opts.Dir, dbName)
	whole := must.Get(os.ReadFile(path))(t)
	used := 0
	s = open(t, s.opts)
	must.Do(t, s.db.View(func(tx *bbolt.Tx) error { used = int(tx.Size()); return nil }))
	must.Do(t, s.Close())
	page := os.Getpagesize()
	refused := func(what string) {
		t.Helper()
		got, err := Open(s.opts)
		if err == nil {
			t.Errorf("%s: opened: %v", what, got.Close())
			return
		}
		wantErr(t, what, err, chat.ErrInvalid)
		expect.True(t, strings.Contains(err.Error(), "restore it from a backup"), "%s: %v", what, err)
		expect.True(t, expect.Err(Peek(s.opts.Dir)) != nil, "%s: Peek opened it", what)
	}
	put := func(b []byte) {
		t.Helper()
		must.Do(t, os.WriteFile(path, b, 0o600))
	}
	for _, size := range []int{1, 100, page, 2 * page, 3 * page, used / 2, used / 2 / page * page, used - page, used - 1} {
		put(whole[:size])
		refused(fmt.Sprintf("cut to %d of %d bytes", size, used))
	}
	for what, from := range map[string]int{"all of it": 0, "all but its first two pages": 2 * page} {
		b := []byte(string(whole))
		for i := from; i < used; i++ {
			b[i] = 0xa5
		}
		put(b)
		refused("overwritten: " + what)
	}
	put(whole)
	if got, err := Open(s.opts); err != nil || got.Len() != 200 {
		t.Errorf("whole again: %v", err)
	} else if err := got.Close(); err != nil {
		t.Error(err)
	}
}

// TestLostFiles: without the database, the key or the audit log, chatd refuses to go on with the
// rest where that would give a uid again or another id, and says what to restore.
func TestLostFiles(t *testing.T) {
	for name, want := range map[string]string{
		dbName:  "never gave uid 1879048192, which audit log",
		keyName: "cannot read install key",
	} {
		s := fresh(t)
		admit(t, s, "a")
		must.Do(t, s.Close())
		must.Do(t, os.Remove(filepath.Join(s.opts.Dir, name)))
		got, err := Open(s.opts)
		if err == nil {
			err = errors.Join(errors.New("opened"), got.Close())
		}
		expect.True(t, strings.Contains(err.Error(), want), "without %s: %v", name, err)
	}
	s := fresh(t)
	admit(t, s, "a")
	must.Do(t, s.Close())
	must.Do(t, os.Remove(filepath.Join(s.opts.Dir, auditName)))
	s = open(t, s.opts)
	expect.True(t, expect.Err(s.VerifyAudit()) != nil, "a lost audit log verifies")
	b, err := os.ReadFile(filepath.Join(s.opts.Dir, auditName))
	if err != nil ||
		!strings.Contains(string(b), "known to have been written, is not where it was") {
		t.Errorf("without the audit log the next says %s, %v", b, err)
	}
}
