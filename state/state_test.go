package state

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var bridge = chat.Caller{Name: "bridge", UID: 1000, Role: chat.RoleBridge}

func event(action, outcome string) Event {
	return Event{Action: action, Outcome: outcome, Caller: bridge}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := must.Get(Open(o))(t)
	t.Cleanup(func() { expect.NoError(t, s.Close()) })
	return s
}

// fresh is a new store with one block for the default profile.
func fresh(t testing.TB) *Store {
	t.Helper()
	s := open(t, Options{Dir: t.TempDir()})
	must.Do(t, expect.Err(s.EnsureBlock(chat.DefaultProfile)))
	return s
}

// again closes the store and opens its directory anew.
func again(t testing.TB, s *Store) *Store {
	t.Helper()
	must.Do(t, s.Close())
	return open(t, s.opts)
}

func admit(t testing.TB, s *Store, externalID string) Record {
	t.Helper()
	r, created, err := s.Admit(chat.Spec{ExternalID: externalID}, event("create", "intent"))
	must.True(t, err == nil && created, "Admit(%q) = created %v, %v", externalID, created, err)
	return r
}

func reap(t testing.TB, s *Store, id chat.ID) {
	t.Helper()
	must.Do(t, s.SetPhase(id, chat.Reaping, event("reap", "intent")))
	must.Do(t, s.Forget(id, event("reap", "done")))
}

func auditFiles(t testing.TB, s *Store) []string {
	t.Helper()
	return must.Get(AuditFiles(s.opts.Dir))(t)
}

// verified fails the test unless the log verifies, and returns its text.
func verified(t testing.TB, s *Store) string {
	t.Helper()
	must.Get(s.VerifyAudit())(t)
	var text string
	for _, path := range auditFiles(t, s) {
		b := must.Get(os.ReadFile(path))(t)
		text += string(b)
	}
	return text
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	expect.Is(t, err, want, "%s: error", what)
	if err != nil && !strings.HasPrefix(err.Error(), "cannot ") {
		t.Errorf("%s: error %q does not begin with cannot", what, err)
	}
}

func TestAdmitGetsOrCreates(t *testing.T) {
	s := fresh(t)
	a := admit(t, s, "../../etc\n🦊")
	if a.UID != DefaultLow || a.Phase != chat.Creating || a.Owner != "bridge" || a.Agent != "main" || a.Profile != "default" {
		t.Errorf("first record: %+v", a)
	}
	b, created, err := s.Admit(chat.Spec{ExternalID: "../../etc\n🦊", Profile: "other"}, event("create", "intent"))
	expect.True(t, err == nil && !created && b.ID == a.ID && b.UID == a.UID,
		"second Admit: %+v, %v, %v", b, created, err)
	other, created, err := s.Admit(chat.Spec{ExternalID: "../../etc\n🦊", Owner: "slack"}, event("create", "intent"))
	expect.True(t, err == nil && created && other.ID != a.ID && other.UID != a.UID,
		"another owner's chat: %+v, %v, %v", other, created, err)
	s = again(t, s)
	for _, want := range []Record{a, other} {
		got, err := s.Find(want.Owner, want.ExternalID)
		expect.True(t, err == nil && fmt.Sprint(got) == fmt.Sprint(want),
			"after reopening: %+v, %v, want %+v", got, err, want)
		expect.Equal(t, must.Get(s.GetUID(want.UID))(t).ID, want.ID, "GetUID(%d) =", want.UID)
	}
	n := strings.Count(verified(t, s), `"action":"create","outcome":"intent"`)
	expect.True(t, n == 2, "%d create intents in the log, want 2", n)
}

func TestAdmitRefuses(t *testing.T) {
	s := fresh(t)
	ok := event("create", "intent")
	nobody := ok
	nobody.Caller = chat.Caller{}
	for _, c := range []struct {
		what string
		spec chat.Spec
		by   Event
		want error
	}{
		{"no external id", chat.Spec{}, ok, chat.ErrInvalid},
		{"invalid UTF-8", chat.Spec{ExternalID: "\xff"}, ok, chat.ErrInvalid},
		{"hostile owner", chat.Spec{ExternalID: "x", Owner: "../a"}, ok, chat.ErrInvalid},
		{"nobody's", chat.Spec{ExternalID: "x"}, nobody, chat.ErrInvalid},
		{"no event", chat.Spec{ExternalID: "x"}, Event{Caller: bridge}, chat.ErrInvalid},
		{"a profile without a block", chat.Spec{ExternalID: "x", Profile: "none"}, ok, chat.ErrBusy},
	} {
		_, created, err := s.Admit(c.spec, c.by)
		wantErr(t, c.what, err, c.want)
		if created || s.Len() != 0 {
			t.Errorf("%s: created %v, %d records", c.what, created, s.Len())
		}
	}
}

// A conversation's first message often arrives several times simultaneously.
func TestAdmitOnceAmongFifty(t *testing.T) {
	s := fresh(t)
	for _, id := range []string{"a", "b", "c"} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		made, uids := 0, map[uint32]bool{}
		for range 50 {
			wg.Go(func() {
				r, created, err := s.Admit(chat.Spec{ExternalID: id}, event("create", "intent"))
				mu.Lock()
				defer mu.Unlock()
				expect.NoError(t, err)
				if created {
					made++
				}
				uids[r.UID] = true
			})
		}
		wg.Wait()
		expect.True(t, made == 1 && len(uids) == 1, "%s: created %d times, uids %v", id, made, uids)
	}
	n := strings.Count(verified(t, s), `"action":"create"`)
	expect.True(t, n == 3, "%d create events, want 3", n)
}

func TestReapedComesBackWithAnotherUID(t *testing.T) {
	s := fresh(t)
	a := admit(t, s, "a")
	reap(t, s, a.ID)
	if !s.Spent(a.UID) || s.Spent(a.UID+1) || s.Given()-s.Len() != 1 {
		t.Errorf("spent: %v, the next: %v, %d are", s.Spent(a.UID), s.Spent(a.UID+1), s.Given()-s.Len())
	}
	_, err := s.Get(a.ID)
	wantErr(t, "Get of a reaped chat", err, chat.ErrNotFound)
	s = again(t, s)
	b := admit(t, s, "a")
	expect.True(t, b.ID == a.ID && b.UID != a.UID,
		"created again: id %s uid %d, was id %s uid %d", b.ID, b.UID, a.ID, a.UID)
	if !s.Spent(a.UID) || s.Spent(b.UID) || s.Given()-s.Len() != 1 {
		t.Errorf("tombstones after creating again: %d", s.Given()-s.Len())
	}
}

// A collision of derived ids takes the next window; after four it is an error.
func TestCollidingIDTakesNextWindow(t *testing.T) {
	s := fresh(t)
	for window := range 5 {
		r, _, err := s.Admit(chat.Spec{ExternalID: "a"}, event("create", "intent"))
		if window == 4 {
			wantErr(t, "fifth collision", err, chat.ErrBusy)
			break
		}
		must.Do(t, err)
		want, err := chat.DeriveID(s.key, "bridge", "a", window)
		must.True(t, err == nil && r.ID == want,
			"window %d: id %s, want %s (%v)", window, r.ID, want, err)
		// the record stays under its id, but as another owner's chat
		s.mu.Lock()
		live := s.index.byID[r.ID]
		delete(s.index.byName, live.name())
		live.ExternalID = fmt.Sprint("other ", window)
		s.index.byName[live.name()] = live
		s.mu.Unlock()
	}
}

func TestPhasesOnlyGoOn(t *testing.T) {
	s := fresh(t)
	id := admit(t, s, "a").ID
	by := event("create", "done")
	for _, step := range []struct {
		to   chat.Phase
		want error
	}{
		{"gone", chat.ErrWrongPhase}, {"", chat.ErrWrongPhase},
		{chat.Ready, nil}, {chat.Ready, nil}, {chat.Creating, chat.ErrWrongPhase},
		{chat.Reaping, nil}, {chat.Reaping, nil}, {chat.Ready, chat.ErrWrongPhase}, {chat.Creating, chat.ErrWrongPhase},
	} {
		wantErr(t, "to "+string(step.to), s.SetPhase(id, step.to, by), step.want)
		if step.to == chat.Ready && step.want == nil {
			wantErr(t, "Forget of a ready chat", s.Forget(id, by), chat.ErrWrongPhase)
		}
	}
	wantErr(t, "unknown chat", s.SetPhase("0123456789abcdef", chat.Ready, by), chat.ErrNotFound)
	wantErr(t, "Forget of an unknown chat", s.Forget("0123456789abcdef", by), chat.ErrNotFound)
	wantErr(t, "Forget without event", s.Forget(id, Event{}), chat.ErrInvalid)
	wantErr(t, "Forget", s.Forget(id, by), nil)
	verified(t, s)
}

func TestClosedStore(t *testing.T) {
	s := fresh(t)
	id := admit(t, s, "a").ID
	for range 2 {
		must.Do(t, s.Close())
	}
	_, _, err := s.Admit(chat.Spec{ExternalID: "b"}, event("create", "intent"))
	wantErr(t, "Admit", err, errClosed)
	wantErr(t, "Flush", s.Flush(), errClosed)
	wantErr(t, "Audit", s.Audit(event("run", "intent")), os.ErrClosed)
	wantErr(t, "ready", s.SetPhase(id, chat.Ready, event("create", "done")), os.ErrClosed)
	expect.NoError(t, expect.Err(s.Get(id)))
}

// TestPatchIsWhole: a patch changes every field or none, stays over a restart, and says what create
// does not compare any more. The uid stays of the block it was given from.
func TestPatchIsWhole(t *testing.T) {
	s := fresh(t)
	r := admit(t, s, "a")
	patch := func(text string) error {
		var p chat.Patch
		must.Do(t, p.UnmarshalJSON([]byte(text)))
		return s.Patch(r.ID, p, event("patch", "done"))
	}
	must.Do(t, patch(`{"profile":"web","env":{"A":"1"},"limits":{"pids_max":77},"labels":{"k":"v"}}`))
	many := `{"profile":"other","env":null,"limits":null,"labels":{`
	for i := range chat.MaxLabels {
		many += fmt.Sprintf(`"n%d":"x",`, i)
	}
	expect.Is(t, patch(many+`"last":"x"}}`), chat.ErrInvalid, "too many labels")
	for range 2 {
		got, err := s.Get(r.ID)
		if err != nil || got.Profile != "web" || got.Env["A"] != "1" || got.Labels["k"] != "v" ||
			string(got.Limits["pids_max"]) != "77" || !slices.Equal(got.Patched, []string{"profile", "env"}) {
			t.Errorf("%+v, %v", got, err)
		}
		if p := s.BlockProfile(got.UID); p != r.Profile || s.BlockProfile(1) != "" {
			t.Errorf("the uid is of a block of %q, want %q", p, r.Profile)
		}
		s = again(t, s)
	}
	must.Do(t, patch(`{"limits":{"pids_max":null}}`))
	got, err := s.Get(r.ID)
	expect.True(t, err == nil && len(got.Limits) == 0, "%+v, %v", got.Limits, err)
}

// TestUnarchive: a chat of an archive has all that its record had, under a new uid; a crash before
// its end leaves that it is made of an archive, and after it that it is ready with its schedules.
func TestUnarchive(t *testing.T) {
	s := fresh(t)
	former := admit(t, s, "telegram:1")
	former.Limits = chat.LimitChange{"memory_max": []byte("5")}
	former.Env = map[string]string{"LANG": "C"}
	former.Patched = []string{"env"}
	former.Labels = map[string]string{"team": "ops"}
	former.CreatedAt = former.CreatedAt.Add(-time.Hour)
	name := chat.NewArchiveName(former.ID, former.CreatedAt)
	expect.Is(t, expect.Err(s.Unarchive(name, former, event("unarchive", "intent"))), chat.ErrExists,
		"while the chat is there")
	reap(t, s, former.ID)
	rec, err := s.Unarchive(name, former, event("unarchive", "intent"))
	must.Do(t, err)
	expect.Is(t, expect.Err(s.Unarchive(name, former, event("unarchive", "intent"))), chat.ErrExists,
		"while it is unarchived")
	s = again(t, s)
	rec, err = s.Get(rec.ID)
	must.True(t, err == nil && rec.Unarchives == name && rec.Phase == chat.Creating && rec.UID != former.UID,
		"it is %+v, %v", rec, err)
	sched := Schedule{Schedule: chat.Schedule{ID: "s1", Spec: chat.ScheduleSpec{Every: chat.Duration(time.Hour)}}}
	must.Do(t, s.Unarchived(rec.ID, former.Env, []Schedule{sched}, event("unarchive", "done")))
	s = again(t, s)
	got, err := s.Get(rec.ID)
	all, serr := s.Schedules(rec.ID)
	if err = errors.Join(err, serr); err != nil || len(all) != 1 || all[0].ID != "s1" {
		t.Fatalf("the schedules are %+v, %v", all, err)
	}
	if got.Phase != chat.Ready || got.Unarchives != "" || !maps.Equal(got.Labels, former.Labels) ||
		!maps.Equal(got.Env, former.Env) || !got.CreatedAt.Equal(former.CreatedAt) ||
		!reflect.DeepEqual(got.Limits, former.Limits) || got.ID != former.ID {
		t.Errorf("it is %+v, was %+v", got, former)
	}
	expect.Is(t, s.Unarchived(rec.ID, nil, nil, event("unarchive", "done")), chat.ErrWrongPhase, "twice")
}

// TestUnarchiveForeign: the record of another install, whose ids are others, is refused.
func TestUnarchiveForeign(t *testing.T) {
	former := admit(t, fresh(t), "telegram:1")
	s := fresh(t)
	name := chat.NewArchiveName(former.ID, former.CreatedAt)
	expect.Is(t, expect.Err(s.Unarchive(name, former, event("unarchive", "intent"))), chat.ErrConflict,
		"another install's")
	expect.True(t, len(s.All()) == 0, "a record is left")
}
