package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkRules is the start of a session with a home of 100,000 files: without rules,
// with rules that find nothing there, and with rules that find 1,000 files. ×none is how
// many times that of the first it takes, in the same run.
func BenchmarkRules(b *testing.B) {
	const files, matches = 100_000, 1_000
	opt := ruledOptions(b, "access: {useDefaults: false}")
	m := must.Get(openManager(b.Context(), opt))(b)
	defer m.Close()
	c := sleeper(b, m, "bench")
	defer func() { must.Do(b, m.Reap(operator(b.Context()), c.ID)) }()
	for i := range files {
		dir := filepath.Join(c.Home, fmt.Sprint(i%1000))
		if i < 1000 {
			must.Do(b, os.Mkdir(dir, 0o755))
		}
		name := fmt.Sprint(i)
		if i < matches {
			name = ".found"
		}
		must.Do(b, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	var none float64
	for _, bb := range []struct{ name, rules string }{
		{"none", "access: {useDefaults: false}"},
		{"below=0", "access: {useDefaults: false, deny: [~/nothing]}"},
		{"anywhere=0", `access: {useDefaults: false, deny: ["**/.nothing"]}`},
		{"anywhere=1000", `access: {useDefaults: false, deny: ["**/.found"]}`},
	} {
		must.Do(b, m.Reload(operator(b.Context()), map[string]*filerules.Policy{"ruled": policy(b, bb.rules)}))
		b.Run(bb.name, func(b *testing.B) {
			benchWake(b, m, c.ID)
			each := b.Elapsed().Seconds() / float64(b.N)
			if bb.name == "none" {
				none = each
			}
			b.ReportMetric(each/none, "×none")
		})
	}
}

func benchWake(b *testing.B, m *manager, id chat.ID) {
	for b.Loop() {
		wake(b, m, id)
		b.StopTimer()
		must.Get(m.Sleep(operator(b.Context()), id))(b)
		b.StartTimer()
	}
}
