package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestProse wants lines of pages within maxColumns. Rows of tables, code and a single word that
// is longer stay as they are.
func TestProse(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "specs/*.md", "deploy/*.md", "deploy/ansible/*.md"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("%s: no page is found, %v", pattern, err)
		}
		pages = append(pages, some...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			other := code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ")
			n := utf8.RuneCountInString(line)
			if n > maxColumns && !other && strings.Contains(line, " ") {
				t.Errorf("%s:%d has %d columns, want at most %d", page, i+1, n, maxColumns)
			}
		}
	}
}
