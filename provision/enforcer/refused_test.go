package enforcer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
)

// refuser answers each order with the next of these counts, and says that there are more.
func refuser(t *testing.T, dir string, counts ...[]orders.Refusals) {
	t.Helper()
	next := make(chan orders.Answer, len(counts))
	for i, c := range counts {
		next <- orders.Answer{Refused: c, MoreRefused: i < len(counts)-1}
	}
	answers(t, dir, func(conn *net.UnixConn, o orders.Order) {
		a := orders.Answer{Error: "want refused"}
		if o.Verb == orders.Refused {
			a = <-next
		}
		_ = json.NewEncoder(conn).Encode(a)
	})
}

// manyRefused are this many files of a chat, each refused twice, and more.
func manyRefused(id chat.ID, files int, more uint64) orders.Refusals {
	r := orders.Refusals{Chat: id, More: more}
	for i := range files {
		r.Files = append(r.Files, orders.RefusedFile{Path: fmt.Append(nil, "/", i), Times: 2})
	}
	return r
}

// TestTakeRefused: a chat gets the lines of its allowance, takes no other's, and every refusal is
// told, in a line of its own or in a sum.
func TestTakeRefused(t *testing.T) {
	const loud, calm = chat.ID("00000000000000aa"), chat.ID("00000000000000bb")
	dir := t.TempDir()
	refuser(t, dir, []orders.Refusals{manyRefused(loud, 30, 100)},
		[]orders.Refusals{manyRefused(calm, 2, 0), manyRefused(loud, 5, 0)})
	c, now := of(dir), time.Unix(1000, 0)
	c.refused.now = func() time.Time { return now }
	lines, sums := map[chat.ID]int{}, map[chat.ID]uint64{}
	count := func(r Refusal) {
		if !r.Unsaid {
			lines[r.Chat]++
		}
	}
	c.TakeRefused(t.Context(), count)
	sum := func(last bool) map[chat.ID]uint64 {
		clear(sums)
		c.sumRefused(last, func(r Refusal) { sums[r.Chat] = r.Times })
		return sums
	}
	expect.True(t, lines[loud] == refusedBurst && lines[calm] == 2, "lines: %v", lines)
	got := sum(false)
	expect.True(t, got[loud] == 100+2*(35-refusedBurst) && len(got) == 1, "sums: %v", got)
	if got := sum(true); len(got) != 0 {
		t.Errorf("told twice: %v", got)
	}
	over := func(r Refusal) {
		expect.True(t, r.Unsaid, "a line over the allowance")
	}
	c.refused.take(manyRefused(loud, 1, 4), over)
	if got := sum(false); len(got) != 0 {
		t.Errorf("a second sum within %s: %v", refusedEvery, got)
	}
	if got := sum(true); got[loud] != 6 {
		t.Errorf("the last call: %v", got)
	}
	now = now.Add(refusedEvery)
	c.refused.take(manyRefused(loud, 2, 0), count)
	if got := sum(false); lines[loud] != refusedBurst+1 || got[loud] != 2 {
		t.Errorf("after %s: %d lines and %v", refusedEvery, lines[loud], got)
	}
	now = now.Add(refusedBurst * refusedEvery)
	if sum(false); len(c.refused.chats) != 0 {
		t.Errorf("chats that are calm again are not forgotten: %v", c.refused.chats)
	}
}

// TestFollowRefused: the enforcer is asked while a session has rules, and what is left is told when
// the end comes.
func TestFollowRefused(t *testing.T) {
	const id = chat.ID("00000000000000aa")
	for needed, want := range map[bool]int{true: refusedBurst + 1, false: 0} {
		t.Run(fmt.Sprint(needed), func(t *testing.T) {
			t.Parallel() // it takes as long as the first look
			dir := t.TempDir()
			refuser(t, dir, []orders.Refusals{manyRefused(id, refusedBurst+1, 0)})
			c, lines := of(dir), map[string]uint64{}
			c.refused.of(id).summed = time.Now() // so that the sum waits for the end
			ctx, cancel := context.WithCancel(t.Context())
			ends := func() bool { cancel(); return needed }
			c.FollowRefused(ctx, ends, func(r Refusal) {
				if !r.Unsaid {
					lines[r.Path] += r.Times
				}
			})
			expect.True(t, len(lines) == want && (want <= 0 || lines[""] == 2),
				"%d lines, want %d: %v", len(lines), want, lines)
		})
	}
}

// TestRefusedOfNobody: an enforcer that is not there, or knows no such order, tells of nothing.
func TestRefusedOfNobody(t *testing.T) {
	line := func(Refusal) { t.Error("a line") }
	dir := t.TempDir()
	of(dir).TakeRefused(t.Context(), line)
	answers(t, dir, with(`{"error":"cannot obey"}`))
	of(dir).TakeRefused(t.Context(), line)
}

// TestRefusedOfSilentEnforcer: those that wait together for an enforcer that takes orders and
// answers none ask it once, and all give up with the first.
func TestRefusedOfSilentEnforcer(t *testing.T) {
	dir := t.TempDir()
	hang := make(chan struct{})
	f := answers(t, dir, func(*net.UnixConn, orders.Order) { <-hang })
	defer close(hang)
	c := of(dir)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { c.TakeRefused(t.Context(), func(Refusal) { t.Error("a line") }) })
	}
	all.Wait()
	expect.Equal(t, f.asked(orders.Refused), 1, "it was asked")
}
