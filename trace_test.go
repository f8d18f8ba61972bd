package chatd

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirement is a row of a spec's table: what holds, where it is done, and which test fails
// without it.
type requirement struct {
	spec, text, code, test string
}

// tableHead begins a table of requirements.
var tableHead = regexp.MustCompile(`^\| requirement[^|]*\| code[^|]*\| test[^|]*\|$`)

// cellEnd is a bar that is not part of a cell's text.
var cellEnd = regexp.MustCompile(`(?:^|[^\\])\|`)

// requirements are the rows of the tables of all specs.
func requirements(t *testing.T) (rows []requirement) {
	t.Helper()
	specs, err := filepath.Glob("specs/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range specs {
		inside := false
		for line := range strings.Lines(page(t, spec)) {
			line = strings.TrimSpace(line)
			switch {
			case tableHead.MatchString(line):
				inside = true
			case !strings.HasPrefix(line, "|"):
				inside = false
			case inside && !strings.HasPrefix(line, "|---"):
				cells := cellsOf(line)
				if len(cells) != 3 {
					t.Errorf("%s: a row has %d cells, want 3: %s", spec, len(cells), line)
					continue
				}
				rows = append(rows, requirement{spec, cells[0], cells[1], cells[2]})
			}
		}
	}
	return rows
}

// cellsOf are the cells of a row, which begins and ends with a bar.
func cellsOf(row string) (cells []string) {
	row = strings.TrimPrefix(row, "|")
	for row != "" {
		end := cellEnd.FindStringIndex(row)
		if end == nil {
			return append(cells, strings.TrimSpace(row))
		}
		cells = append(cells, strings.TrimSpace(row[:end[1]-1]))
		row = row[end[1]:]
	}
	return cells
}

// repository is what rows may name.
type repository struct {
	files map[string]bool     // files and folders, and every end of their paths
	tests map[string][]string // of a test function: the folders that have one
	words map[string]bool     // of all that is not Markdown
}

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w*)\(`)
	numbered = regexp.MustCompile(`^\w+/\d{4}\b`) // an ADR or a spec by its number
	anyWord  = regexp.MustCompile(`\w+`)
)

func readRepository(t *testing.T) repository {
	t.Helper()
	repo := repository{map[string]bool{}, map[string][]string{}, map[string]bool{}}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if d.IsDir() && (path == ".git" || path == "bin") {
			return filepath.SkipDir
		}
		for end := path; ; {
			repo.files[end] = true
			if m := numbered.FindString(end); m != "" {
				repo.files[m] = true
			}
			_, after, more := strings.Cut(end, "/")
			if !more {
				break
			}
			end = after
		}
		if !d.Type().IsRegular() || filepath.Ext(path) == ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, word := range anyWord.FindAll(text, -1) {
			repo.words[string(word)] = true
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			repo.tests[string(m[1])] = append(repo.tests[string(m[1])], filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// named are the words of a cell, without what encloses them.
func named(cell string) (words []string) {
	isEnd := func(r rune) bool { return strings.ContainsRune(" ,;()", r) }
	for _, word := range strings.FieldsFunc(cell, isEnd) {
		words = append(words, strings.TrimRight(strings.Trim(word, "`:'"), ".:"))
	}
	return words
}

var (
	fileName  = regexp.MustCompile(`^[\w./-]+\.(go|md|yaml|yml|j2|txt|txtar|json)$`)
	pathName  = regexp.MustCompile(`^\.?[\w.-]+(/[\w.-]+)+$`)
	camelCase = regexp.MustCompile(`^(\w+\.)*([a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)$`)
	aTest     = regexp.MustCompile(
		`(?:([a-z][\w/-]*)(?:\.|: ))?\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)(…?)`)
	aScript = regexp.MustCompile(`\w+\.txtar\b|\bmake [a-z]|\.ci/run\b|\btest/\w+/[a-z]`)
)

// checkCode wants the files, folders and identifiers of a code cell to be there.
func (r repository) checkCode(row requirement) (dead []string) {
	for _, word := range named(row.code) {
		switch m := camelCase.FindStringSubmatch(word); {
		case fileName.MatchString(word) || pathName.MatchString(word):
			if !r.files[word] {
				dead = append(dead, word)
			}
		case m != nil && !r.words[m[2]]:
			dead = append(dead, word)
		}
	}
	return dead
}

// checkTests wants the tests of a test cell to be there, and in the package that a test names.
// A name that ends in … stands for all that begin so.
func (r repository) checkTests(row requirement) (dead []string) {
	for _, m := range aTest.FindAllStringSubmatch(row.test, -1) {
		var in []string
		for name, dirs := range r.tests {
			if name == m[2] || m[3] != "" && strings.HasPrefix(name, m[2]) {
				in = append(in, dirs...)
			}
		}
		right := !r.files[m[1]] || slices.ContainsFunc(in, func(dir string) bool {
			return strings.HasSuffix("/"+dir, "/"+m[1])
		})
		if len(in) == 0 || !right {
			dead = append(dead, m[0])
		}
	}
	for _, word := range named(row.test) {
		if fileName.MatchString(word) && !r.files[word] {
			dead = append(dead, word)
		}
	}
	return dead
}

// maxUntested is how many requirements name neither a test nor a program that tests them. It may
// only fall.
const maxUntested = 4

// tracePage begins specs/trace.md.
const tracePage = "# Trace: requirement → code → test\n\n" +
	"Generated from the tables of the specs: write there, then `go generate .`. TestTrace fails\n" +
	"where a row names code or a test that is not there.\n\n" +
	"| spec | requirement | code | test that fails without it |\n|---|---|---|---|\n"

// TestTrace: each requirement of the specs names code and tests that are there, and
// specs/trace.md has them all.
func TestTrace(t *testing.T) {
	repo, rows, untested := readRepository(t), requirements(t), 0
	is := tracePage
	for _, row := range rows {
		name := filepath.Base(row.spec)
		is += "| [" + name[:4] + "](" + name + ") | " +
			strings.Join([]string{row.text, row.code, row.test}, " | ") + " |\n"
		if dead := repo.dead(row); len(dead) > 0 {
			t.Errorf("%s: %q names what is not there: %q", row.spec, row.text, dead)
		}
		if !aTest.MatchString(row.test) && !aScript.MatchString(row.test) {
			untested++
			t.Logf("%s: no test: %s", row.spec, row.text)
		}
	}
	if len(rows) < 500 {
		t.Errorf("%d requirements were found, want at least 500", len(rows))
	}
	if untested > maxUntested {
		t.Errorf("%d requirements name no test, want at most %d", untested, maxUntested)
	}
	if *update {
		writePage(t, "specs/trace.md", is)
	} else if page(t, "specs/trace.md") != is {
		t.Error("specs/trace.md is stale; write it anew: go generate .")
	}
}

// dead are the names in a row that name nothing, and its empty cells.
func (r repository) dead(row requirement) []string {
	all := append(r.checkCode(row), r.checkTests(row)...)
	for _, cell := range []string{row.text, strings.Trim(row.code, "–"), row.test} {
		if cell == "" {
			all = append(all, "an empty cell")
		}
	}
	return all
}

// TestTraceFinds: a name that is wrong is found, and one that is right is not.
func TestTraceFinds(t *testing.T) {
	repo := readRepository(t)
	for row, want := range map[string]int{
		"| a | provision/steps.go forwards, reap.go | roottest.TestLife, netpolicy: TestWall |": 0,
		"| a | adrs/0006, .ci/run, quota | TestServe…, Explain; `x \\| y` |":                    0,
		"| a | provision/nothing.go | TestLife |":                                               1,
		"| a | provision/steps.go noFunctionOfThat" + "Name | TestLife |":                       1,
		"| a | test/nowhere/run | TestLife, Test" + "Nowhere, TestNo" + "where… |":              3,
		"| a | quota | filerules.TestLife, FuzzNo" + "where, nowhere.txtar |":                   3,
		"| a | | TestLife |": 1,
		"| a | – | – |":      1,
	} {
		cells := cellsOf(row)
		if len(cells) != 3 {
			t.Fatalf("%q has the cells %q", row, cells)
		}
		if dead := repo.dead(requirement{"", cells[0], cells[1], cells[2]}); len(dead) != want {
			t.Errorf("in %s %q is wrong, want %d names", row, dead, want)
		}
	}
}

// patterns are the regular expressions by which a script chooses tests.
var patterns = regexp.MustCompile(`(?:-run |-skip |\b(?:long|host|attacks|without)=)'([^']+)'`)

// TestPatternsOfScripts: each name in a pattern by which a script chooses or leaves out tests is
// that of a test: after a rename it would choose fewer, without a word.
func TestPatternsOfScripts(t *testing.T) {
	repo, words := readRepository(t), 0
	for _, script := range []string{"Makefile", "test/all", "test/vagrant/e2e"} {
		for _, m := range patterns.FindAllStringSubmatch(page(t, script), -1) {
			for _, word := range anyWord.FindAllString(m[1], -1) {
				words++
				if !repo.hasTest(word) {
					t.Errorf("%s: the pattern %q has %s, and no test has it in its name", script, m[1], word)
				}
			}
		}
	}
	if words < 50 {
		t.Errorf("control: only %d words are in patterns", words)
	}
}

func (r repository) hasTest(word string) bool {
	for name := range r.tests {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
