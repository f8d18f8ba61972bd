package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
	anyWord  = regexp.MustCompile(`\w+`)

	// patterns are the regular expressions by which a script chooses tests.
	patterns = regexp.MustCompile(`(?:-run |-skip |\b(?:long|host|attacks|without)=)'([^']+)'`)
)

// testNames are the names of the repository's tests, a line each.
func testNames(t *testing.T) string {
	t.Helper()
	var names strings.Builder
	must.Do(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names.Write(append(m[1], '\n'))
		}
		return err
	}))
	return names.String()
}

// TestPatternsOfScripts: each name in a pattern by which a script chooses or leaves out tests is
// that of a test: after a rename it would choose fewer, without a word.
func TestPatternsOfScripts(t *testing.T) {
	names, words := testNames(t), 0
	for _, script := range []string{"Makefile", "test/all", "test/vagrant/e2e"} {
		for _, m := range patterns.FindAllStringSubmatch(page(t, script), -1) {
			for _, word := range anyWord.FindAllString(m[1], -1) {
				words++
				if !strings.Contains(names, word) {
					t.Errorf("%s: the pattern %q has %s, and no test has it in its name", script, m[1], word)
				}
			}
		}
	}
	expect.True(t, words >= 50, "control: only %d words are in patterns", words)
}
