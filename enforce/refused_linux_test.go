package enforce

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRefusals: what is counted is bounded, fits on the wire however long the names are, is
// handed out once, and no chat takes another's place.
func TestRefusals(t *testing.T) {
	var r refusals
	asked := 0
	long := func(i int) string { return strings.Repeat("\xff", 5000) + fmt.Sprint(i) }
	want := map[chat.ID]uint64{}
	for i := range 50 {
		id := chat.ID(fmt.Sprintf("%016x", i))
		for n := range 3 * maxRefused {
			for range 2 {
				r.add(id, fmt.Sprint(n)+long(n), func() string { asked++; return long(n) })
				want[id]++
			}
		}
	}
	expect.True(t, asked == 50*maxRefused,
		"a name was looked for %d times, want once for each file that is held: %d", asked, 50*maxRefused)
	for more := true; more; {
		a := r.take()
		b, err := json.Marshal(a)
		must.True(t, err == nil && len(b) <= orders.MaxAnswer,
			"an answer of %d bytes, %v: want at most %d", len(b), err, orders.MaxAnswer)
		for _, c := range a.Refused {
			expect.True(t, len(c.Files) == maxRefused, "%d files of chat %s", len(c.Files), c.Chat)
			for _, f := range c.Files {
				want[c.Chat] -= f.Times
			}
			want[c.Chat] -= c.More
		}
		more = a.MoreRefused
	}
	for id, left := range want {
		expect.True(t, left == 0, "%d opens of chat %s are not accounted for", left, id)
	}
	if a := r.take(); len(a.Refused) != 0 {
		t.Errorf("handed out twice: %d chats", len(a.Refused))
	}
}
