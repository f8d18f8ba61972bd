package roottest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestListPages: a page of chats that say much is about 1 MiB long, whatever limit is asked for, and
// the pages together have every chat once.
func TestListPages(t *testing.T) {
	opt := options(t)
	p := opt.Profiles["default"]
	for i := range 4000 { // each chat says them all
		p.Egress = append(p.Egress, parsedAllows(t, fmt.Sprintf("%060d.example.test:443", i))...)
	}
	opt.Profiles["default"] = p
	m := open(t, opt)
	ctx := operator(t.Context())
	no, want := false, 6
	for i := range want {
		must(t, second2(m.Create(ctx, chat.Spec{ExternalID: fmt.Sprint(i), Awake: &no})))
	}
	seen := map[chat.ID]bool{}
	pages := 0
	for f := (chat.Filter{Limit: 1000}); ; pages++ {
		page, err := m.List(ctx, f)
		must(t, err)
		b, err := json.Marshal(page)
		must(t, err)
		if len(b) > 3<<19 {
			t.Errorf("a page of %d chats has %d bytes", len(page.Chats), len(b))
		}
		for _, c := range page.Chats {
			seen[c.ID] = true
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if len(seen) != want || pages < 1 {
		t.Errorf("%d chats in %d pages, want %d in several", len(seen), pages+1, want)
	}
	for id := range seen {
		must(t, m.Reap(ctx, id))
	}
}
