package roottest

import (
	"fmt"
	"os"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// BenchmarkStart measures a start of the daemon until every wall was tried. The first of a state
// directory also makes the directories and the PATH, and is not counted. To compare two commits,
// build the tests of both with go test -c and let them take turns.
func BenchmarkStart(b *testing.B) {
	needsRoot(b)
	opt := options(b)
	t := table{}
	for round := range envInt("CHATD_BENCH_ROUNDS", 25) + 1 {
		var m *manager
		what := "start"
		if round == 0 {
			what = "first start"
		}
		t.time(what, func() { m = must.Get(openManager(b.Context(), opt))(b) })
		must.Do(b, m.Close())
	}
	for _, what := range []string{"first start", "start"} {
		fmt.Fprintf(os.Stderr, "%-28s %-12s %8.2f ms\n", b.Name(), what, t.median(what))
	}
	b.ReportMetric(t.median("start"), "ms/start")
	b.ReportMetric(0, "ns/op")
}
