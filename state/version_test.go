package state

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOtherVersion: a state of another version is refused with both versions and what
// to do, by everything that opens it, and not a byte of it changes.
func TestOtherVersion(t *testing.T) {
	s := fresh(t)
	admit(t, s, "a")
	must.Do(t, s.Close())
	dir := s.opts.Dir
	for _, v := range []int{Version + 1, 5} {
		refusesVersion(t, s.opts, v)
	}
	putVersion(t, dir, "two")
	_, err := Open(s.opts)
	wantErr(t, "a word for a version", err, chat.ErrInvalid)
}

func refusesVersion(t *testing.T, o Options, version int) {
	t.Helper()
	dir := o.Dir
	putVersion(t, dir, strconv.Itoa(version))
	before := sums(t, dir)
	opened, openErr := Open(o)
	if openErr == nil {
		t.Fatalf("opened: %v", opened.Close())
	}
	_, peekErr := Peek(dir)
	_, _, auditErr := CheckAudit(dir)
	for what, err := range map[string]error{"Open": openErr, "Peek": peekErr, "CheckAudit": auditErr} {
		wantErr(t, what, err, chat.ErrUnsupported)
		for _, part := range []string{dbName, fmt.Sprintf("its version is %d, and this chatd knows "+
			"version %d alone", version, Version), "start the chatd that wrote it, or restore"} {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", what, err, part)
			}
		}
	}
	after := sums(t, dir)
	expect.True(t, reflect.DeepEqual(before, after), "the refused state changed:\n%v\n%v", before, after)
}

func putVersion(t testing.TB, dir, word string) {
	t.Helper()
	db := must.Get(bbolt.Open(filepath.Join(dir, dbName), 0o600, nil))(t)
	put := func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte(word)) }
	must.Do(t, errors.Join(db.Update(put), db.Close()))
}

// sums are the contents, modes and times of the files of a directory.
func sums(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			m[e.Name()] = e.Type().String()
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		fi, ierr := e.Info()
		must.Do(t, errors.Join(err, ierr))
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
	for _, k := range [][]byte{formatKey, keyPrintKey, headKey} {
		fields = append(fields, "meta "+string(k))
	}
	slices.Sort(fields)
	got := strings.Join(fields, "\n") + "\n"
	file := filepath.Join("testdata", fmt.Sprintf("version-%d.txt", Version))
	want := must.Get(os.ReadFile(file))(t)
	expect.Equal(t, got, string(want),
		"what is stored differs from %s: raise Version, and add a file for the new version.\n", file)
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

// TestCheckGiven: a database is refused for each uid in its range that owns paths and was never
// given, except the probes' uid; the error names some of the paths.
func TestCheckGiven(t *testing.T) {
	given := func(uid uint32) bool { return uid < 110 }
	check := func(owners map[uint32]string) error {
		return CheckGiven("/state", given, Range{100, 139}, owners)
	}
	known := map[uint32]string{0: "root", 99: "below", 100: "first", 109: "given", 139: "probe",
		140: "above"}
	for _, owners := range []map[uint32]string{nil, known} {
		expect.Is(t, check(owners), nil, "%v", owners)
	}
	known[110] = "/homes/a"
	err := check(known)
	if !errors.Is(err, chat.ErrExists) ||
		!strings.Contains(err.Error(), "never heard of /homes/a of uid 110: restore chatd.db") {
		t.Errorf("%v", err)
	}
	for uid := uint32(111); uid <= 138; uid++ {
		known[uid] = "/homes/b"
	}
	err = check(known)
	if err == nil || !strings.Contains(err.Error(), "/homes/b of uid 114, 24 more: restore") ||
		strings.Contains(err.Error(), "uid 115") {
		t.Errorf("%v", err)
	}
}
