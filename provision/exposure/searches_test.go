package exposure

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestSearches: 100 callers cost one search, which those of another expression do not wait for; a
// result serves for 2 seconds, an error too, and is forgotten then.
func TestSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSearches()
		var mu sync.Mutex
		counts := map[string]int{}
		search := func(g chat.Grant) (*expansion, error) {
			mu.Lock()
			counts[g.Pattern]++
			mu.Unlock()
			time.Sleep(time.Hour)
			return &expansion{g: g}, errors.New("as asked for")
		}
		ask := func(pattern string, want int) {
			t.Helper()
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					e, err := s.expand(chat.Grant{Pattern: pattern}, search)
					expect.True(t, err != nil && e.g.Pattern == pattern, "%+v, %v", e, err)
				})
			}
			all.Wait()
			mu.Lock()
			defer mu.Unlock()
			expect.True(t, counts[pattern] == want,
				"%d searches for %s, want %d", counts[pattern], pattern, want)
		}
		begin := time.Now()
		var both sync.WaitGroup
		for _, pattern := range []string{"^/a/", "^/b/"} {
			both.Go(func() { ask(pattern, 1) })
		}
		both.Wait()
		if took := time.Since(begin); took != time.Hour {
			t.Errorf("two searches took %s: one waited for the other", took)
		}
		ask("^/a/", 1)
		time.Sleep(searchAge + 1)
		ask("^/a/", 2)
		expect.True(t, len(s.last) == 1, "%d results are kept, want 1", len(s.last))
	})
}
