package layout

import (
	"bytes"
	"os"
	"strings"
	"testing"
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
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"time.Now().Unix", "time.Now().UTC().Unix"} {
			if bytes.Contains(b, []byte(form)) && !named[path] {
				t.Errorf("%s measures by %s…", path, form)
			}
		}
	}
}
