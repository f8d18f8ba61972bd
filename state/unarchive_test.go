package state

import (
	"errors"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
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
	if _, err := s.Unarchive(name, former, event("unarchive", "intent")); !errors.Is(err, chat.ErrExists) {
		t.Errorf("while the chat is there: %v", err)
	}
	reap(t, s, former.ID)
	rec, err := s.Unarchive(name, former, event("unarchive", "intent"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unarchive(name, former, event("unarchive", "intent")); !errors.Is(err, chat.ErrExists) {
		t.Errorf("while it is unarchived: %v", err)
	}
	s = again(t, s)
	rec, err = s.Get(rec.ID)
	if err != nil || rec.Unarchives != name || rec.Phase != chat.Creating || rec.UID == former.UID {
		t.Fatalf("it is %+v, %v", rec, err)
	}
	sched := Schedule{Schedule: chat.Schedule{ID: "s1", Spec: chat.ScheduleSpec{Every: chat.Duration(time.Hour)}}}
	if err := s.Unarchived(rec.ID, former.Env, []Schedule{sched}, event("unarchive", "done")); err != nil {
		t.Fatal(err)
	}
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
	if err := s.Unarchived(rec.ID, nil, nil, event("unarchive", "done")); !errors.Is(err, chat.ErrWrongPhase) {
		t.Errorf("twice: %v", err)
	}
}

// TestUnarchiveForeign: the record of another install, whose ids are others, is refused.
func TestUnarchiveForeign(t *testing.T) {
	former := admit(t, fresh(t), "telegram:1")
	s := fresh(t)
	name := chat.NewArchiveName(former.ID, former.CreatedAt)
	if _, err := s.Unarchive(name, former, event("unarchive", "intent")); !errors.Is(err, chat.ErrConflict) {
		t.Errorf("another install's: %v", err)
	}
	if len(s.All()) != 0 {
		t.Error("a record is left")
	}
}
