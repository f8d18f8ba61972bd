package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// image copies the state as a crash now would leave it, with the log cut to size bytes for a power
// cut that loses unsynced bytes. The copies do not carry the locks of the live store.
func image(t testing.TB, s *Store, size int64) Options {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o700))
	s.writer.Lock()
	defer s.writer.Unlock()
	for _, name := range []string{keyName, dbName, auditName} {
		b := must.Get(os.ReadFile(filepath.Join(s.opts.Dir, name)))(t)
		if name == auditName && size >= 0 {
			b = b[:size]
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	o := s.opts
	o.Dir = dir
	return o
}

// calm is a store whose background never flushes by itself.
func calm(t testing.TB) *Store {
	t.Helper()
	s := fresh(t)
	for !s.stirred.CompareAndSwap(false, true) { // as if one were due, which never comes
		time.Sleep(time.Millisecond)
	}
	must.Do(t, s.Flush()) // after one that has begun
	return s
}

// The log may lose everything after its last synced line: after Open every event that was committed
// with a record is in the log once, and the log verifies.
func TestPowerCutLosesNoIntent(t *testing.T) {
	s := calm(t)
	from := s.log.head.Offset
	for i := range 4 {
		r := admit(t, s, fmt.Sprint(i))
		must.Do(t, s.Audit(event("run", "intent")))
		if i%2 == 0 {
			reap(t, s, r.ID)
		}
	}
	for size := from; size <= s.log.head.Offset; size += 61 {
		got := open(t, image(t, s, size))
		text := verified(t, got)
		for what, want := range map[string]int{
			`"action":"create","outcome":"intent"`: 4, `"action":"reap","outcome":"intent"`: 2,
			`"action":"reap","outcome":"done"`: 2, `"action":"block"`: 1,
		} {
			if n := strings.Count(text, what); n != want {
				t.Fatalf("log cut to %d bytes: %s is there %d times, want %d:\n%s", size, what, n, want, text)
			}
		}
		if got.Len() != 2 {
			t.Errorf("%d records", got.Len())
		}
		tx := got.tx
		text = verified(t, again(t, got)) // and no line is replayed twice
		if n := strings.Count(text, `"action":"create"`); n != 4 || tx != s.tx {
			t.Errorf("after another start: %d create events; tx %d, want %d", n, tx, s.tx)
		}
	}
}

// A kill keeps the page cache: no line is lost, none doubled.
func TestKillLosesNoLine(t *testing.T) {
	s := calm(t)
	for i := range 3 {
		admit(t, s, fmt.Sprint(i))
		must.Do(t, s.Audit(event("run", "intent")))
	}
	want := verified(t, s)
	got := verified(t, open(t, image(t, s, -1)))
	expect.True(t, got == want, "log after the kill\n%s\nwant\n%s", got, want)
}

func TestTornLineIsCutAndSaid(t *testing.T) {
	for what, tail := range map[string][]byte{
		"half a line": []byte(`{"seq":3,"time":"2026-`), "NULs": make([]byte, 8192), "a huge one": bytes.Repeat([]byte("x"), 1<<20),
	} {
		s := fresh(t)
		admit(t, s, "a")
		o := image(t, s, -1)
		appendTo(t, filepath.Join(o.Dir, auditName), tail)
		text := verified(t, open(t, o))
		want := fmt.Sprintf("cut off a last line without an end, of %d bytes", len(tail))
		expect.True(t, strings.Contains(text, want), "%s: the log does not say %q:\n%s", what, want, text)
		expect.True(t, strings.Contains(text, `"action":"create"`), "%s: the line before is gone", what)
	}
}

func appendTo(t testing.TB, path string, b []byte) {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0))(t)
	must.Get(io.Copy(f, bytes.NewReader(b)))(t)
	must.Do(t, f.Close())
}

// TestMeddlingWhileDown: a log that is cut, replaced or changed while chatd is down is detected at
// the next start; the log records it and never verifies again.
func TestMeddlingWhileDown(t *testing.T) {
	for _, c := range []struct {
		what   string
		meddle func(whole []byte) []byte
		says   string
	}{
		{"last line cut off", func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] }, "is not where it was"},
		{"all cut off", func([]byte) []byte { return nil }, "is not where it was"},
		{"last line changed", func(b []byte) []byte {
			return append(b[:bytes.LastIndex(b, []byte("intent"))], append([]byte("denied"), b[bytes.LastIndex(b, []byte("intent"))+6:]...)...)
		}, "is not where it was"},
		{"half a line cut off", func(b []byte) []byte { return b[:len(b)-9] }, "is not where it was"},
		{"a line added", func(b []byte) []byte { return append(b, "{\"seq\":4}\n"...) }, "is not the hash of the line before"},
		{"rubbish added", func(b []byte) []byte { return append(b, "rubbish\n"...) }, "it is no event"},
	} {
		s := fresh(t)
		admit(t, s, "a")
		must.Do(t, s.Audit(event("run", "intent")))
		must.Do(t, s.Close())
		path := filepath.Join(s.opts.Dir, auditName)
		whole := must.Get(os.ReadFile(path))(t)
		rewrite(t, path, c.meddle(whole))
		for range 2 {
			s = open(t, s.opts)
			expect.True(t, expect.Err(s.VerifyAudit()) != nil, "%s: the log verifies", c.what)
			must.Do(t, s.Close())
		}
		text := must.Get(os.ReadFile(path))(t)
		n := strings.Count(string(text), c.says)
		expect.True(t, n == 1, "%s: says %q %d times, want once:\n%s", c.what, c.says, n, text)
	}
}

// While the log cannot be written, at most the events of one commit wait.
func TestUnwritableLog(t *testing.T) {
	s := fresh(t)
	good := s.log.file
	bad, err := os.Open(good.Name()) // read only: every write fails
	must.Do(t, err)
	swap := func(f *os.File) {
		s.log.mu.Lock()
		defer s.log.mu.Unlock()
		s.log.file = f
	}
	swap(bad)
	admit(t, s, "a") // durable in the outbox
	expect.True(t, s.Behind() != nil, "nobody is told that the log is behind")
	expect.True(t, s.Audit(event("run", "intent")) != nil, "Audit says it wrote what it could not")
	_, _, err = s.Admit(chat.Spec{ExternalID: "b"}, event("create", "intent"))
	if err == nil || s.Len() != 1 {
		t.Errorf("a second commit: %v, %d records", err, s.Len())
	}
	swap(good)
	admit(t, s, "b")
	n := strings.Count(verified(t, s), `"action":"create"`)
	expect.True(t, n == 2, "%d create events, want 2", n)
	expect.NoError(t, bad.Close())
}

// An inconsistent database is refused: using it could give a uid twice.
func TestOpenRefusesBrokenRecords(t *testing.T) {
	for what, breakIt := range map[string]func(*bbolt.Tx, Record) error{
		"counter behind": func(tx *bbolt.Tx, r Record) error {
			return putBlock(tx, block{Profile: "default", Range: Range{DefaultLow, DefaultLow + 65535}, Next: r.UID})
		},
		"no blocks": func(tx *bbolt.Tx, r Record) error { return tx.Bucket(blockBucket).Delete(uidKey(DefaultLow)) },
		"one name twice": func(tx *bbolt.Tx, r Record) error {
			r.UID, r.ID = r.UID-1, "0123456789abcdef"
			return putRecord(tx, &r)
		},
		"one id twice": func(tx *bbolt.Tx, r Record) error {
			r.UID, r.ExternalID = r.UID-1, "x"
			return putRecord(tx, &r)
		},
		"wrong key": func(tx *bbolt.Tx, r Record) error { return tx.Bucket(recordBucket).Put([]byte("x"), []byte(`{}`)) },
		"no JSON":   func(tx *bbolt.Tx, r Record) error { return tx.Bucket(recordBucket).Put(uidKey(1), []byte(`{`)) },
		"outbox":    func(tx *bbolt.Tx, r Record) error { return tx.Bucket(outboxBucket).Put([]byte("x"), []byte(`{}`)) },
		"head":      func(tx *bbolt.Tx, r Record) error { return tx.Bucket(metaBucket).Put(headKey, []byte(`{"offset":-1}`)) },
		"format":    func(tx *bbolt.Tx, r Record) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("two")) },
	} {
		s := fresh(t)
		reap(t, s, admit(t, s, "first").ID)
		r := admit(t, s, "a")
		must.Do(t, s.Close())
		db := must.First(openDB(filepath.Join(s.opts.Dir, dbName), false, time.Second))(t)
		must.Do(t, db.Update(func(tx *bbolt.Tx) error { return breakIt(tx, r) }))
		must.Do(t, db.Close())
		if got, err := Open(s.opts); err == nil {
			t.Errorf("%s: opened; %v", what, got.Close())
		} else if !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%s: %v", what, err)
		} else {
			t.Log(what, "→", err)
		}
	}
}

// FuzzReadEnd opens a log with any bytes after its kept head: no complete line is lost, and the
// store's next lines follow them.
func FuzzReadEnd(f *testing.F) {
	f.Add([]byte("{\"seq\":2}\n{"), int64(1))
	f.Add([]byte("\n\n\x00"), int64(0))
	f.Fuzz(func(t *testing.T, tail []byte, offset int64) {
		file := must.Get(os.CreateTemp(t.TempDir(), "log"))(t)
		must.Get(file.Write(tail))(t)
		e, err := readEnd(file, head{Hash: noHash, Offset: max(offset, 0)})
		if err != nil || e.head.Offset+e.torn != int64(len(tail)) || e.head.Offset != int64(bytes.LastIndexByte(tail, '\n')+1) {
			t.Errorf("%+v, %v of %d bytes", e, err, len(tail))
		}
		must.Do(t, file.Close())
	})
}

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
