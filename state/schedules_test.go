package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func daily(id string, n int) Schedule {
	next := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	made := time.Date(2026, 11, 21, 9, 0, n, 0, time.UTC)
	return Schedule{Schedule: chat.Schedule{ID: id, Spec: chat.ScheduleSpec{Cron: "0 9 * * *", Command: "true"}, CreatedAt: made, Next: &next}}
}

// Schedules survive a restart, in their order, and are removed with their chat: no key of its uid
// is left, and another chat's schedules stay.
func TestSchedulesLiveAsTheirChat(t *testing.T) {
	s := fresh(t)
	a, b := admit(t, s, "a"), admit(t, s, "b")
	for i, id := range []string{"z", "a", "m"} {
		must.Do(t, s.AddSchedule(a.ID, daily(id, i), event("schedule", "done")))
	}
	must.Do(t, s.AddSchedule(b.ID, daily("z", 0), event("schedule", "done")))
	must.Get(s.ChangeSchedule(a.ID, "a", func(x *Schedule) { x.Runs = 7 }))(t)
	s = again(t, s)
	all, err := s.Schedules(a.ID)
	expect.True(t, err == nil && len(all) == 3 && all[0].ID+all[1].ID+all[2].ID == "zam" && all[1].Runs == 7,
		"after a restart: %+v, %v", all, err)
	reap(t, s, a.ID)
	again := must.First(s.Admit(chat.Spec{ExternalID: "a"}, event("create", "intent")))(t)
	all, err = s.Schedules(again.ID)
	expect.True(t, err == nil && len(all) == 0, "the next chat of this name has %+v, %v", all, err)
	left := 0
	if err := s.db.View(func(tx *bbolt.Tx) error {
		left = tx.Bucket(scheduleBucket).Stats().KeyN
		return nil
	}); err != nil || left != 1 {
		t.Errorf("%d schedules are kept, %v", left, err)
	}
	seen := ""
	if err := s.EachSchedule(func(r Record, x Schedule) { seen += string(r.ID) + x.ID }); err != nil || seen != string(b.ID)+"z" {
		t.Errorf("each: %q, %v", seen, err)
	}
	text := verified(t, s)
	expect.True(t, strings.Count(text, `"action":"schedule"`) == 4, "the audit log has %s", text)
}

func TestSchedulesRefuse(t *testing.T) {
	s := fresh(t)
	a, b := admit(t, s, "a"), admit(t, s, "b")
	must.Do(t, s.AddSchedule(a.ID, daily("x", 0), event("schedule", "done")))
	_, err := s.Schedule(b.ID, "x")
	wantErr(t, "another chat's", err, chat.ErrNotFound)
	wantErr(t, "another chat's, removed", s.RemoveSchedule(b.ID, "x", event("unschedule", "done")), chat.ErrNotFound)
	for _, id := range []string{"", "y", "x\x00", strings.Repeat("x", 1<<20)} {
		_, err = s.Schedule(a.ID, id)
		wantErr(t, "one that is not there", err, chat.ErrNotFound)
		_, err = s.ChangeSchedule(a.ID, id, func(*Schedule) { t.Error("edited") })
		wantErr(t, "one that is not there", err, chat.ErrNotFound)
	}
	wantErr(t, "no chat", s.AddSchedule("0123456789abcdef", daily("x", 0), event("schedule", "done")), chat.ErrNotFound)
	must.Do(t, s.SetPhase(b.ID, chat.Reaping, event("reap", "intent")))
	wantErr(t, "a chat that is reaping", s.AddSchedule(b.ID, daily("x", 0), event("schedule", "done")), chat.ErrWrongPhase)
	must.Do(t, s.RemoveSchedule(a.ID, "x", event("unschedule", "done")))
	all, err := s.Schedules(a.ID)
	expect.True(t, err == nil && len(all) == 0, "after remove: %+v, %v", all, err)
}

// A chat has at most 32; the oldest that is over is replaced, one that runs is not.
func TestSchedulesAreBounded(t *testing.T) {
	s := fresh(t)
	a := admit(t, s, "a")
	for i := range chat.MaxSchedules {
		must.Do(t, s.AddSchedule(a.ID, daily(fmt.Sprintf("s%02d", i), i), event("schedule", "done")))
	}
	wantErr(t, "one too many", s.AddSchedule(a.ID, daily("more", 99), event("schedule", "done")), chat.ErrBusy)
	now := time.Now()
	for i, id := range []string{"s05", "s07"} {
		must.Get(s.ChangeSchedule(a.ID, id, func(x *Schedule) {
			if x.Next = nil; i == 0 {
				x.RunningSince = &now
			}
		}))(t)
	}
	expect.NoError(t, s.AddSchedule(a.ID, daily("more", 99), event("schedule", "done")))
	wantErr(t, "again one too many", s.AddSchedule(a.ID, daily("last", 99), event("schedule", "done")), chat.ErrBusy)
	expect.NoError(t, expect.Err(s.Schedule(a.ID, "s05")))
	_, err := s.Schedule(a.ID, "s07")
	wantErr(t, "what gave way", err, chat.ErrNotFound)
}
