package layout

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestNoTimesOfTheWallClock: no program keeps a moment as a number of the wall clock to measure by
// later. The clock may be set in between, and what waits for a second then waits for a year. A
// time.Time has the monotonic clock too, unless it was written and read.
func TestNoTimesOfTheWallClock(t *testing.T) {
	named := map[string]bool{"shims/files/temp_linux.go": true} // part of a name
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, form := range []string{"time.Now().Unix", "time.Now().UTC().Unix"} {
			expect.True(t, named[path] || !strings.Contains(page(t, path), form), "%s measures by %s…", path, form)
		}
	}
}
