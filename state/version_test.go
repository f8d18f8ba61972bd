package state

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"go.etcd.io/bbolt"
)

// commits are those since 8207e3e that changed what is stored, the first and the last of version 1
// among them, each with what its fixture has that others lack. A fixture is the state directory of
// a process that was killed; testdata/commits/genstate.go.txt made it with that commit's code.
var commits = []struct {
	commit             string
	endedBy, env, argv bool
}{
	{"8207e3e", false, false, false},
	{"3f03715", true, false, false},  // a schedule's last result names what ended the run
	{"790b765", false, false, false}, // owners' uids; the former was taken back
	{"0843519", true, false, false},  // and came again
	{"f50086f", true, true, false},   // env of a record
	{"b664eae", true, true, true},    // argv of an event
	{"5f08fb1", true, true, true},    // the last without a migration
	{"c2c9164", true, true, true},    // the last of version 2
	{"ef38164", true, true, true},    // the last of version 3
	{"d8ae4d9", true, true, true},    // the last of version 4
}

// lastOf are the last commits of the versions after the first.
var lastOf = map[string]int{"c2c9164": 2, "ef38164": 3, "d8ae4d9": 4}

// fixture unpacks the state of a commit, and returns how to open it.
func fixture(t testing.TB, commit string) Options {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(filepath.Join("testdata", "commits", commit+".tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := tar.NewReader(bzip2.NewReader(f)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return Options{Dir: dir, UIDs: Range{100000, 100999}, BlockSize: 100, AuditMax: 900}
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestMigrate opens the state of every commit that changed what is stored: each record, counter,
// tombstone, schedule and line is there as it was written, the outbox is in the log, and what is
// written then is of today's version.
func TestMigrate(t *testing.T) {
	for _, c := range commits {
		t.Run(c.commit, func(t *testing.T) {
			o := fixture(t, c.commit)
			s := open(t, o)
			checkFixture(t, s, c.endedBy, c.env)
			text := verified(t, s)
			for what, want := range map[string]int{
				`"action":"migrate","outcome":"done"`: 1, fmt.Sprintf(`"detail":{"from":"%d","to":"%d"}`, max(1, lastOf[c.commit]), Version): 1,
				`"action":"create","outcome":"intent"`: 5, `"action":"reap","outcome":"done"`: 1,
				`"action":"rotate"`: 3, `"action":"run","outcome":"intent"`: 6,
				`"argv":["sh","-c","echo 5"]`: map[bool]int{true: 1}[c.argv],
			} {
				if n := strings.Count(text, what); n != want &&
					!(what == `"action":"rotate"` && n > want) {
					t.Errorf("%s is in the log %d times, want %d", what, n, want)
				}
			}
			r := admit(t, s, "of today")
			s = again(t, s)
			if got, err := s.Get(r.ID); err != nil || got.UID != 100004 {
				t.Errorf("a chat of today: uid %d, %v; want 100004, the next", got.UID, err)
			}
			if v := storedVersion(t, s); v != Version {
				t.Errorf("stored version %d, want %d", v, Version)
			}
			if n := strings.Count(verified(t, s), `"action":"migrate"`); n != 1 {
				t.Errorf("%d migrations in the log, want 1", n)
			}
			checkFixture(t, s, c.endedBy, c.env)
		})
	}
}

func storedVersion(t testing.TB, s *Store) (v int) {
	t.Helper()
	if err := s.db.View(func(tx *bbolt.Tx) (err error) { v, err = versionOf(tx); return err }); err != nil {
		t.Fatal(err)
	}
	return v
}

// checkFixture compares what genstate wrote with what is read.
func checkFixture(t testing.TB, s *Store, endedBy, env bool) {
	t.Helper()
	at := func(sec int) time.Time { return time.Date(2026, 11, 22, 9, 0, sec, 0, time.UTC) }
	for _, want := range []struct {
		owner, name, profile string
		uid                  uint32
		phase                chat.Phase
	}{
		{"bridge", "telegram:1", "default", 100000, chat.Ready},
		{"slack", "../../etc\n-rf \U0001F4AC", "agent", 100100, chat.Ready},
		{"bridge", "telegram:3", "default", 100002, chat.Reaping},
		{"bridge", "telegram:4", "default", 100003, chat.Creating},
	} {
		r, err := s.Find(want.owner, want.name)
		id, derr := chat.DeriveID(s.key, want.owner, want.name, 0)
		if err := errors.Join(err, derr); err != nil || r.ID != id || r.UID != want.uid || r.Profile != want.profile || r.Phase != want.phase ||
			r.Agent != "main" || r.Labels["team"] != "ops" || env != (r.Env["LANG"] == "C.UTF-8") ||
			r.CreatedAt.Before(at(0)) ||
			r.UsedAt.Before(r.CreatedAt) {
			t.Errorf("%s: %+v, %v", want.name, r, err)
		}
		if want.name != "telegram:4" && r.Account != "userdb" {
			t.Errorf("%s: account %q", want.name, r.Account)
		}
	}
	if !s.Spent(100001) || s.Tombstones() != 1 {
		t.Errorf("the reaped chat's uid: spent %v, %d tombstones", s.Spent(100001), s.Tombstones())
	}
	a, err := s.Find("bridge", "telegram:1")
	if err != nil || !a.UsedAt.After(a.CreatedAt) {
		t.Errorf("used %s, created %s, %v", a.UsedAt, a.CreatedAt, err)
	}
	all, err := s.Schedules(a.ID)
	if err != nil || len(all) != 1 || all[0].Last == nil {
		t.Fatalf("schedules %+v, %v", all, err)
	}
	got, last := all[0], all[0].Last
	if got.ID != "s1" || got.Spec.Command != "make" || got.Runs != 3 || got.Skipped != 1 || got.Missed != 2 || got.By.Name != "bridge" || got.Next == nil ||
		!got.Taken.Equal(at(30*60)) || !got.Due.Equal(at(30*60)) || last.Output != "so far" ||
		last.Signal != "SIGKILL" ||
		(last.EndedBy == "timeout") != endedBy {
		t.Errorf("schedule %+v, last %+v", got, last)
	}
}

// TestMigrateOwners: owners are counted from version 2 on, and those of version 1 with the uids of
// their chats that exist; 790b765 had counted the reaped one too.
func TestMigrateOwners(t *testing.T) {
	for commit, uids := range map[string]uint64{"8207e3e": 3, "790b765": 4} {
		s := open(t, fixture(t, commit))
		if got := s.HeldBy("bridge"); got != (OwnerUse{Chats: 3, UIDs: uids}) {
			t.Errorf("%s: bridge holds %+v, want 3 chats and %d uids", commit, got, uids)
		}
		var stored []byte
		if err := s.db.View(func(tx *bbolt.Tx) error {
			stored = bytes.Clone(tx.Bucket(ownerBucket).Get([]byte("slack")))
			return nil
		}); err != nil || !bytes.Equal(stored, []byte{0, 0, 0, 0, 0, 0, 0, 1}) {
			t.Errorf("%s: stored for slack: %x, %v", commit, stored, err)
		}
	}
}

// TestMigrateIsOneCommit: a process that ends before a migration is committed leaves the old
// version, whole.
func TestMigrateIsOneCommit(t *testing.T) {
	o := fixture(t, "8207e3e")
	step := migrations[0]
	defer func() { migrations[0] = step }()
	failed := errors.New("no room")
	migrations[0] = func(tx *bbolt.Tx) error { return errors.Join(step(tx), failed) }
	if s, err := Open(o); !errors.Is(err, failed) {
		t.Fatalf("opened: %v %v", s, err)
	}
	migrations[0] = step
	if given, err := Peek(o.Dir); err != nil || !given(100003) || given(100004) {
		t.Errorf("version 1 is not readable as it was: %v", err)
	}
	checkFixture(t, open(t, o), false, false)
}

// TestNewerVersion: a state of a later version is refused with both versions and what to do, by
// everything that opens it, and not a byte of it changes.
func TestNewerVersion(t *testing.T) {
	s := fresh(t)
	admit(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dir := s.opts.Dir
	putVersion(t, dir, strconv.Itoa(Version+1))
	before := sums(t, dir)
	opened, openErr := Open(s.opts)
	if openErr == nil {
		t.Fatalf("opened: %v", opened.Close())
	}
	_, peekErr := Peek(dir)
	_, _, auditErr := CheckAudit(dir)
	for what, err := range map[string]error{"Open": openErr, "Peek": peekErr, "CheckAudit": auditErr} {
		wantErr(t, what, err, chat.ErrUnsupported)
		for _, part := range []string{dbName, fmt.Sprintf("its version is %d, and this chatd knows versions 1 to %d", Version+1, Version), "start the chatd that wrote it, or a later one, or restore a backup"} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
	}
	if after := sums(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("the refused state changed:\n%v\n%v", before, after)
	}
	putVersion(t, dir, "two")
	_, err := Open(s.opts)
	wantErr(t, "a word for a version", err, chat.ErrInvalid)
}

func putVersion(t testing.TB, dir, word string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, dbName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte(word)) }
	if err := errors.Join(db.Update(put), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// sums are the contents, modes and times of the files of a directory.
func sums(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			m[e.Name()] = e.Type().String()
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		fi, ierr := e.Info()
		if err := errors.Join(err, ierr); err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = fmt.Sprintf("%x %s %s", sha256.Sum256(b), fi.Mode(), fi.ModTime())
	}
	return m
}

// TestStoredFields compares the fields of everything that is stored with those of the version. One
// more field is one more version: an older chatd reads and writes whole records, and would drop it.
func TestStoredFields(t *testing.T) {
	var fields []string
	for name, v := range map[string]any{"record": Record{}, "block": block{}, "schedule": Schedule{}, "line": line{}, "head": head{}} {
		fields = append(fields, storedFields(name, reflect.TypeOf(v))...)
	}
	for _, b := range buckets {
		fields = append(fields, "bucket "+string(b))
	}
	for _, k := range [][]byte{formatKey, keyPrintKey, headKey, floorKey} {
		fields = append(fields, "meta "+string(k))
	}
	slices.Sort(fields)
	got := strings.Join(fields, "\n") + "\n"
	file := filepath.Join("testdata", fmt.Sprintf("version-%d.txt", Version))
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("what is stored differs from %s: raise Version, add a migration, the fixture of a state before it, and a file for the new version.\n%s",
			file, got)
	}
}

// storedFields are the JSON paths of a type, with the kinds of their values.
func storedFields(path string, of reflect.Type) (fields []string) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return []string{path + " " + of.Kind().String()}
	}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields = append(fields, storedFields(path, f.Type)...)
		case name == "":
			name = f.Name
			fallthrough
		case name != "-":
			fields = append(fields, storedFields(path+"."+name, f.Type)...)
		}
	}
	return fields
}
