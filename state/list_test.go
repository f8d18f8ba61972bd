package state

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// collect reads all pages of a filter.
func collect(t testing.TB, s *Store, f chat.Filter) (pages int, ids []chat.ID) {
	t.Helper()
	for {
		recs, next, err := s.List(f)
		must.Do(t, err)
		pages++
		for _, r := range recs {
			ids = append(ids, r.ID)
		}
		if f.Cursor = next; next == "" || len(ids) > s.Len() {
			return pages, ids
		}
	}
}

func TestListPagesInOrder(t *testing.T) {
	// three chats an instant, so that ids decide too
	clock := time.Date(2026, 1, 1, 0, 0, 0, 999, time.UTC)
	n := 0
	s := open(t, Options{Dir: t.TempDir(), Now: func() time.Time { n++; return clock.Add(time.Duration(n/6) * time.Nanosecond) }})
	must.Do(t, expect.Err(s.EnsureBlock(chat.DefaultProfile)))
	for i := range 23 {
		admit(t, s, fmt.Sprint(i))
	}
	var want []chat.ID
	for _, r := range s.All() {
		want = append(want, r.ID)
	}
	for _, limit := range []int{1, 2, 7, 22, 23, 24, 0, 5000} {
		pages, got := collect(t, s, chat.Filter{Limit: limit})
		expect.True(t, fmt.Sprint(got) == fmt.Sprint(want), "limit %d: %v, want %v", limit, got, want)
		if limit > 0 && limit < 1000 && pages != (23+limit-1)/limit {
			t.Errorf("limit %d: %d pages", limit, pages)
		}
	}
	// reaping the chat that a cursor names does not move the others
	_, next, err := s.List(chat.Filter{Limit: 5})
	must.Do(t, err)
	reap(t, s, want[4])
	s = again(t, s)
	if _, got := collect(t, s, chat.Filter{Cursor: next}); fmt.Sprint(got) != fmt.Sprint(want[5:]) {
		t.Errorf("after a reap and a restart: %v, want %v", got, want[5:])
	}
}

func TestListFilters(t *testing.T) {
	s := fresh(t)
	for _, spec := range []chat.Spec{
		{ExternalID: "1", Owner: "slack", Labels: map[string]string{"team": "red", "vip": ""}},
		{ExternalID: "2", Owner: "slack", Labels: map[string]string{"team": "blue"}},
		{ExternalID: "1", Owner: "telegram", Labels: map[string]string{"team": "red"}},
	} {
		must.Do(t, expect.Err(s.Admit(spec, event("create", "intent"))))
	}
	for _, c := range []struct {
		filter chat.Filter
		want   int
	}{
		{chat.Filter{}, 3}, {chat.Filter{Owner: "slack"}, 2}, {chat.Filter{Owner: "nobody"}, 0},
		{chat.Filter{ExternalID: "1"}, 2}, {chat.Filter{Owner: "slack", ExternalID: "1"}, 1},
		{chat.Filter{Label: "team=red"}, 2}, {chat.Filter{Label: "team"}, 3}, {chat.Filter{Label: "vip"}, 1},
		{chat.Filter{Label: "vip="}, 1}, {chat.Filter{Label: "team="}, 0}, {chat.Filter{Owner: "slack", Label: "team=red"}, 1},
	} {
		_, ids := collect(t, s, c.filter)
		expect.True(t, len(ids) == c.want, "%+v: %d chats, want %d", c.filter, len(ids), c.want)
	}
	for _, f := range []chat.Filter{{Limit: -1}, {Label: "=x"}, {Label: "a b"}, {Cursor: "x"}} {
		_, _, err := s.List(f)
		wantErr(t, fmt.Sprintf("%+v", f), err, chat.ErrInvalid)
	}
}

func TestHostileCursors(t *testing.T) {
	good := cursorOf(&Record{ID: "0123456789abcdef", CreatedAt: time.Unix(1, 2)})
	must.Get(parseCursor(good))(t)
	for _, c := range []string{
		" ", "!", good + "A", good[:21], good + "=", good + "\n", "\n" + good, good[:10] + "\r\n" + good[10:],
		good[:21] + "B", strings.Repeat("A", 1<<20), base64.RawURLEncoding.EncodeToString(make([]byte, 15)), "../../../../etc/passwd",
	} {
		_, err := parseCursor(c)
		wantErr(t, chat.Quote(c), err, chat.ErrInvalid)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(cursorOf(&Record{ID: "0123456789abcdef", CreatedAt: time.Unix(1, 2)}))
	f.Add("AAAAAAAAAAAAAAAAAAAAAA")
	f.Add("_____________________w")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseCursor(text)
		if err != nil {
			wantErr(t, text, err, chat.ErrInvalid)
			return
		}
		expect.Equal(t, cursorOf(&r), text, "%q reads as what is written", text)
	})
}

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
			if got := s.UsedBy(owner); got != h || s.Owners()[owner] != h {
				t.Errorf("%s: %s has %+v, want %+v", when, owner, got, h)
			}
		}
	}
	check("before a restart")
	s = again(t, s)
	check("after it")
	expect.Is(t, expect.Err(s.Admit(chat.Spec{ExternalID: "3", Owner: "ada"}, event("create", "intent"), atMost(2))), full,
		"over the condition")
	r, created, err := s.Admit(chat.Spec{ExternalID: "2", Owner: "ada"}, event("create", "intent"), atMost(2))
	expect.True(t, err == nil && !created && r.Owner == "ada", "one that is there: %v, %v", created, err)
	_, created, err = s.Admit(chat.Spec{ExternalID: "2", Owner: "bob"}, event("create", "intent"), atMost(2))
	expect.True(t, err == nil && created, "another owner: %v, %v", created, err)
	want["bob"] = OwnerUse{Chats: 2, UIDs: 2}
	check("after the refusal")
}

func admitFor(t testing.TB, s *Store, owner, externalID string) Record {
	t.Helper()
	return must.First(s.Admit(chat.Spec{ExternalID: externalID, Owner: owner}, event("create", "intent")))(t)
}
