package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// drafted begins a restore into dir of a state with the chats named.
func drafted(t testing.TB, dir string, replace bool, names ...string) *Restore {
	t.Helper()
	from := fresh(t)
	for _, name := range names {
		admit(t, from, name)
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	snap, err := TakeSnapshot(t.Context(), from.opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	r, err := BeginRestore(dir, replace)
	if err != nil {
		t.Fatal(err)
	}
	o := unpacked(t, snap, Options{})
	for _, f := range snap.Files {
		if err := os.Rename(filepath.Join(o.Dir, f.Name), filepath.Join(r.Draft(), f.Name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestRestoreEndsAnywhere ends a restore at every step after it was decided: the next Open
// completes it, and the former state is aside, whole.
func TestRestoreEndsAnywhere(t *testing.T) {
	ended := errors.New("ended here")
	defer func() { restoreStep = func(string) error { return nil } }()
	for at := 0; ; at++ {
		old := fresh(t)
		admit(t, old, "old")
		admit(t, old, "older")
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		dir := old.opts.Dir
		if err := os.WriteFile(filepath.Join(dir, "logs"), []byte("a chat's"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := sums(t, dir)
		r := drafted(t, dir, true, "new")
		step, where := 0, ""
		restoreStep = func(name string) error {
			if step++; step > at {
				where = name
				return ended
			}
			return nil
		}
		_, err := r.Put()
		restoreStep = func(string) error { return nil }
		if cerr := r.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if !errors.Is(err, ended) && err != nil {
			t.Fatal(err)
		}
		s := open(t, old.opts)
		if _, err := s.Find("bridge", "new"); err != nil || s.Len() != 1 {
			t.Errorf("ended at %q: %d chats, %v", where, s.Len(), err)
		}
		verified(t, s)
		aside, err2 := filepath.Glob(filepath.Join(dir, "replaced-*"))
		if err2 != nil || len(aside) != 1 {
			t.Fatalf("ended at %q: aside %v, %v", where, aside, err2)
		}
		for name, sum := range sums(t, aside[0]) {
			if before[name] != sum {
				t.Errorf("ended at %q: %s was changed aside", where, name)
			}
		}
		if left, err := filepath.Glob(filepath.Join(dir, "restore.*")); err != nil ||
			len(left) > 0 {
			t.Errorf("ended at %q: left %v, %v", where, left, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "logs")); err != nil ||
			string(b) != "a chat's" {
			t.Errorf("ended at %q: a file that is no part of the state: %q, %v", where, b, err)
		}
		o := old.opts
		o.Dir = aside[0]
		if was := open(t, o); was.Len() != 2 {
			t.Errorf("ended at %q: the former state has %d chats", where, was.Len())
		}
		if err == nil {
			t.Logf("%d steps", at)
			if at < 9 {
				t.Errorf("%d steps, want at least three files out and three in", at)
			}
			return
		}
	}
}

// TestRestoreUndecided: before it is decided a restore changes no file of the state.
func TestRestoreUndecided(t *testing.T) {
	s := fresh(t)
	admit(t, s, "a")
	dir := s.opts.Dir
	if _, err := BeginRestore(dir, true); !errors.Is(err, chat.ErrBusy) ||
		!strings.Contains(err.Error(), "another chatd holds it") {
		t.Errorf("beside a chatd: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := BeginRestore(dir, true); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("beside a chatd whose lock was removed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := sums(t, dir)
	_, err := BeginRestore(dir, false)
	wantErr(t, "a state that is there", err, chat.ErrExists)
	if err == nil || !strings.Contains(err.Error(), "audit.jsonl chatd.db install.key") ||
		!strings.Contains(err.Error(), "--replace") {
		t.Error(err)
	}
	r := drafted(t, dir, true, "b")
	if _, err := r.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if after := sums(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("changed:\n%v\n%v", before, after)
	}
}

// TestSkipUIDs: below the floor no uid is given, in no block that is there or comes, also after a
// restart; and what lies there counts as given.
func TestSkipUIDs(t *testing.T) {
	o := Options{Dir: t.TempDir(), UIDs: Range{100000, 100999}, BlockSize: 100}
	s := open(t, o)
	for _, p := range []string{"default", "agent"} {
		if _, _, err := s.EnsureBlock(p); err != nil {
			t.Fatal(err)
		}
	}
	a := admit(t, s, "a")
	if err := s.SkipUIDs(100250, event("restore", "done")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.SkipUIDs(100120, event("restore", "done")); err != nil { // lower: nothing
			t.Fatal(err)
		}
		for i, profile := range []string{"default", "agent"} {
			r, _, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(s.Given(), i), Profile: profile},
				event("create", "intent"))
			if err != nil || r.UID < 100250 {
				t.Errorf("profile %s got uid %d, %v", profile, r.UID, err)
			}
		}
		if s.WasGiven(100999) || !s.WasGiven(100249) {
			t.Errorf("given: the last below the floor %v, the last of all %v", s.WasGiven(100249),
				s.WasGiven(100999))
		}
		s = again(t, s)
	}
	if got, err := s.Get(a.ID); err != nil || got.UID != 100000 {
		t.Errorf("a chat below the floor: %+v, %v", got, err)
	}
	if given, err := Peek(again(t, s).opts.Dir); err == nil {
		t.Errorf("Peek beside a daemon: %v", given(1))
	}
	full := open(t, Options{Dir: t.TempDir(), UIDs: Range{100, 139}, BlockSize: 16})
	if _, _, err := full.EnsureBlock("default"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "no uid above the floor", full.SkipUIDs(139, event("restore", "done")), chat.ErrBusy)
}

// TestFloor: what is known decides; where nothing is, half of the rest is left out.
func TestFloor(t *testing.T) {
	all := Range{100000, 100999} // blocks of 62
	for _, c := range []struct {
		known Known
		last  uint32
		want  uint32
	}{
		{Known{100005, true}, 0, 100005},
		{Known{100005, true}, 100200, 100201},
		{Known{100005, false}, 100004, 100005},
		{Known{100000, false}, 0, 100000 + 62*9},  // 17 blocks, the last a part
		{Known{100005, false}, 0, 100000 + 62*9},  // of 16 that are left 8
		{Known{100063, false}, 0, 100000 + 62*10}, // of 15 that are left 8
		{Known{100995, false}, 0, 100999},
		{Known{100005, false}, 100003, 0},
		{Known{100005, true}, 99, 0},
	} {
		got, err := Floor(c.known, all, c.last)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%+v, last %d: %d, %v, want %d", c.known, c.last, got, err, c.want)
		}
		if err != nil {
			wantErr(t, "Floor", err, chat.ErrInvalid)
		}
	}
	all = Range{DefaultLow, DefaultHigh}
	if got, err := Floor(Known{Next: all.Low + 10}, all, 0); err != nil ||
		got != all.Low+129*65536 {
		t.Errorf("of the default range: %d, %v", got, err)
	}
}
