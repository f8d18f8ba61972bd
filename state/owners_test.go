package state

import (
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOwnersCount: what an owner holds is counted, passed to the conditions of Admit, and survives
// restarts; a spent uid stays counted after its chat is gone.
func TestOwnersCount(t *testing.T) {
	s := fresh(t)
	full := errors.New("full")
	atMost := func(n uint64) func(OwnerUse) error {
		return func(h OwnerUse) error {
			if h.UIDs >= n {
				return full
			}
			return nil
		}
	}
	rec := admitFor(t, s, "ada", "1")
	admitFor(t, s, "ada", "2")
	admitFor(t, s, "bob", "1")
	reap(t, s, rec.ID)
	want := map[string]OwnerUse{"ada": {Chats: 1, UIDs: 2}, "bob": {Chats: 1, UIDs: 1}}
	check := func(when string) {
		t.Helper()
		for owner, h := range want {
			if got := s.HeldBy(owner); got != h || s.Owners()[owner] != h {
				t.Errorf("%s: %s has %+v, want %+v", when, owner, got, h)
			}
		}
	}
	check("before a restart")
	s = again(t, s)
	check("after it")
	expect.Is(t, expect.Err(s.Admit(chat.Spec{ExternalID: "3", Owner: "ada"}, event("create", "intent"), atMost(2))), full,
		"over the condition")
	if r, created, err := s.Admit(chat.Spec{ExternalID: "2", Owner: "ada"}, event("create", "intent"), atMost(2)); err != nil || created || r.Owner != "ada" {
		t.Errorf("one that is there: %v, %v", created, err)
	}
	if _, created, err := s.Admit(chat.Spec{ExternalID: "2", Owner: "bob"}, event("create", "intent"), atMost(2)); err != nil || !created {
		t.Errorf("another owner: %v, %v", created, err)
	}
	want["bob"] = OwnerUse{Chats: 2, UIDs: 2}
	check("after the refusal")
}

func admitFor(t testing.TB, s *Store, owner, externalID string) Record {
	t.Helper()
	r, _, err := s.Admit(chat.Spec{ExternalID: externalID, Owner: owner}, event("create", "intent"))
	must.Do(t, err)
	return r
}
