package roottest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
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
		must.Do(t, second2(m.Create(ctx, chat.Spec{ExternalID: fmt.Sprint(i), Awake: &no})))
	}
	seen := map[chat.ID]bool{}
	pages := 0
	for f := (chat.Filter{Limit: 1000}); ; pages++ {
		page := must.Get(m.List(ctx, f))(t)
		b := must.Get(json.Marshal(page))(t)
		expect.True(t, len(b) <= 3<<19, "a page of %d chats has %d bytes", len(page.Chats), len(b))
		for _, c := range page.Chats {
			seen[c.ID] = true
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	expect.True(t, len(seen) == want && pages >= 1,
		"%d chats in %d pages, want %d in several", len(seen), pages+1, want)
	for id := range seen {
		must.Do(t, m.Reap(ctx, id))
	}
}
