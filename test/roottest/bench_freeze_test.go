package roottest

import (
	"fmt"
	"os"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkThaw measures the first input to a chat that is awake, frozen or asleep, in turn in one
// run, and what the thaw and the wake alone take.
func BenchmarkThaw(b *testing.B) {
	needsRoot(b)
	m := open(b, options(b))
	ctx := operator(b.Context())
	c := create(b, m, "bench", "default")
	t := table{}
	freeze := func() { must.Get(m.Freeze(asBridge(b.Context(), "root"), c.ID))(b) }
	sleep := func() { must.Get(m.Sleep(ctx, c.ID))(b) }
	input := func() { must.Do(b, m.Input(ctx, c.ID, chat.Input{Text: "true", Enter: true})) }
	for range envInt("CHATD_BENCH_ROUNDS", 25) {
		t.time("input, awake", input)
		freeze()
		t.time("input, frozen", input)
		sleep()
		t.time("input, asleep", input)
		t.time("freeze", freeze)
		t.time("thaw", func() { must.Get(m.Thaw(ctx, c.ID))(b) })
		sleep()
		t.time("wake", func() { must.Get(m.Wake(ctx, c.ID))(b) })
	}
	for _, what := range []string{
		"input, awake", "input, frozen", "input, asleep", "freeze", "thaw", "wake",
	} {
		fmt.Fprintf(os.Stderr, "%-28s %-14s %8.2f ms\n", b.Name(), what, t.median(what))
	}
	b.ReportMetric(t.median("thaw")/t.median("wake"), "thaw/wake")
	b.ReportMetric(0, "ns/op")
}
