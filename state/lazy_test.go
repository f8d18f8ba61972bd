package state

import (
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestLazyIsFlushedByCloseAndByTime(t *testing.T) {
	s := fresh(t)
	a, b := admit(t, s, "a"), admit(t, s, "b")
	used := a.UsedAt.Add(time.Hour)
	must.Do(t, s.SetPhase(a.ID, chat.Ready, event("create", "done")))
	s.Touch(a.ID, used)
	s.Touch(a.ID, used.Add(-time.Minute))
	s.Touch("0123456789abcdef", used)
	must.Do(t, s.SetAccount(b.ID, "userdb", event("create", "intent")))
	s = again(t, s)
	if r, err := s.Get(a.ID); err != nil || r.Phase != chat.Ready || !r.UsedAt.Equal(used) {
		t.Errorf("after Close: %+v, %v", r, err)
	}
	if r, err := s.Get(b.ID); err != nil || r.Phase != chat.Creating || r.Account != "userdb" {
		t.Errorf("after Close: %+v, %v", r, err)
	}
	s.Touch(b.ID, used)
	waitClean(t, s)
	x, _, _, err := load(s.db)
	expect.True(t, err == nil && x.byID[b.ID].UsedAt.Equal(used),
		"not written in the background: %v", err)
}

// TestMoveUsed: used_at of all chats moves, also to an earlier time, and is written.
func TestMoveUsed(t *testing.T) {
	s := fresh(t)
	recs := []Record{admit(t, s, "a"), admit(t, s, "b")}
	s.MoveUsed(func(used time.Time) time.Time { return used.Add(-time.Hour) })
	s = again(t, s)
	for _, was := range recs {
		if r, err := s.Get(was.ID); err != nil || !r.UsedAt.Equal(was.UsedAt.Add(-time.Hour)) {
			t.Errorf("used at %s and then at %s, %v", was.UsedAt, r.UsedAt, err)
		}
	}
}

// waitClean waits, long enough for any machine, until no write is delayed.
func waitClean(t *testing.T, s *Store) {
	t.Helper()
	for range 6000 {
		if clean(s) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("still held back after a minute")
}

// clean takes the writer lock, so that it does not see a flush half done.
func clean(s *Store) bool {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return len(s.dirty) == 0 && s.log.head == s.log.onDisk
}

// A durable change of a record does not overwrite a newer used_at with an older one.
func TestTouchSurvivesAnotherChange(t *testing.T) {
	s := fresh(t)
	r := admit(t, s, "a")
	used := r.UsedAt.Add(time.Hour)
	s.Touch(r.ID, used)
	must.Do(t, s.SetAccount(r.ID, "userdb", event("create", "intent")))
	got, err := again(t, s).Get(r.ID)
	expect.True(t, err == nil && got.UsedAt.Equal(used) && got.Account == "userdb", "%+v, %v", got, err)
}

func TestRecordsAreCopies(t *testing.T) {
	s := fresh(t)
	labels := map[string]string{"team": "a"}
	r := must.First(s.Admit(chat.Spec{ExternalID: "a", Labels: labels}, event("create", "intent")))(t)
	labels["team"] = "changed by the caller"
	r.Labels["team"] = "changed by the receiver"
	for _, r := range s.All() {
		r.Labels["team"] = "changed in All"
	}
	got, err := s.Get(r.ID)
	expect.True(t, err == nil && got.Labels["team"] == "a", "labels: %v, %v", got.Labels, err)
}
