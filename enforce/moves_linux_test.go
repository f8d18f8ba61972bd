package enforce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// TestQuickMoves: directories around a denied file are moved before the enforcer looks at any of
// it, or one after the other: what each was called is put together all the same, and a new
// compilation keeps the file closed.
func TestQuickMoves(t *testing.T) {
	const rules = `access: {useDefaults: false, deny: ["~/p/q/s"]}`
	for name, tt := range map[string]struct {
		moves  [][2]string
		atOnce bool
		file   string
	}{
		"inner first":             {[][2]string{{"p/q", "p/r"}, {"p", "o"}, {"o", "n"}}, true, "n/r/s"},
		"outer first":             {[][2]string{{"p", "o"}, {"o/q", "o/r"}, {"o", "n"}}, true, "n/r/s"},
		"inner first, one by one": {[][2]string{{"p/q", "p/r"}, {"p", "o"}, {"o", "n"}}, false, "n/r/s"},
		"outer first, one by one": {[][2]string{{"p", "o"}, {"o/q", "o/r"}, {"o", "n"}}, false, "n/r/s"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newInside(t, false, false)
			makeFree(t, filepath.Join(a.home, "p/q/s"))
			_, err := a.hold(rules)
			must.Do(t, err)
			w := a.k.watch
			if tt.atOnce {
				w.mu.Lock()
			}
			for _, m := range tt.moves {
				must.Do(t, os.Rename(filepath.Join(a.home, m[0]), filepath.Join(a.home, m[1])))
				if !tt.atOnce {
					a.try(t, []string{a.home}) // an open comes after the names before it
				}
			}
			if tt.atOnce {
				w.mu.Unlock()
			}
			if tt.atOnce { // nobody opens anything before
				_, err = a.hold(rules)
				must.Do(t, err)
			}
			for _, when := range []string{"moved", "compiled again"} {
				if got := a.try(t, []string{filepath.Join(a.home, tt.file)})[0]; got.Read || got.Write {
					t.Errorf("%s: %+v", when, got)
				}
				_, err = a.hold(rules)
				must.Do(t, err)
			}
		})
	}
}
