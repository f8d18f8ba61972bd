package layout

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/test/must"
)

// TestProse wants lines of pages within maxColumns. Rows of tables, code and a single word that
// is longer stay as they are.
func TestProse(t *testing.T) {
	var names []string
	for _, pattern := range []string{"*.md", "specs/*.md", "deploy/*.md", "deploy/ansible/*.md"} {
		some, err := filepath.Glob(pattern)
		must.True(t, err == nil && len(some) != 0, "%s: no page is found, %v", pattern, err)
		names = append(names, some...)
	}
	for _, name := range names {
		code := false
		for i, line := range strings.Split(page(t, name), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			other := code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ")
			n := utf8.RuneCountInString(line)
			if n > maxColumns && !other && strings.Contains(line, " ") {
				t.Errorf("%s:%d has %d columns, want at most %d", name, i+1, n, maxColumns)
			}
		}
	}
}
