package state

import (
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if err != nil || rec.Unarchives != name || rec.Phase != chat.Creating || rec.UID == former.UID {
		t.Fatalf("it is %+v, %v", rec, err)
	}
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
