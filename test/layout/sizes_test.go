package layout

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/chatd/chatd/test/must"
)

// totals are the figures of the repository, code without tests where nothing else is said. A figure
// may be at most the total: who makes more raises it in a line of the diff, and answers for it. A
// total that is more than a hundredth too large has to fall too. "make layout" prints the figures.
var totals = map[string]int{
	"lines of code":                    73_770,
	"lines of tests":                   74_360,
	"lines of the largest package":     5_373,
	"lines beyond 110 columns":         230,
	"methods of provision.Manager":     117,
	"words of pages":                   45_546,
	"lines of the median function":     11,
	"lines that chatd-root reaches":    32_089,
	"lines that chatd-enforce reaches": 4_300,
}

const (
	minPackage  = 100 // lines of one that is no program: a smaller topic belongs to its user
	maxColumns  = 100 // of a line of a page; a tab counts as 4
	wideColumns = 110 // of a line of code
)

// isTotal compares a figure with its total.
func isTotal(t *testing.T, what string, figure int) {
	t.Helper()
	total := totals[what]
	t.Logf("%s: %d of %d", what, figure, total)
	switch slack := max(total/100, 20); {
	case figure > total:
		t.Errorf("%s: %d, want at most %d: take away as much, or raise the total", what, figure, total)
	case figure < total-slack:
		t.Errorf("%s: %d, and the total is %d: write down what was won", what, figure, total)
	}
}

// sizes are the figures of some Go files.
type sizes struct {
	code, comments, wide int
}

func TestSizes(t *testing.T) {
	var all sizes
	packages := map[string]int{}
	var functions []int
	tests, methods := 0, 0
	for _, path := range goFiles(t) {
		s := measure(t, path)
		if strings.HasSuffix(path, "_test.go") {
			tests += s.code
			continue
		}
		all.code += s.code
		all.comments += s.comments
		all.wide += s.wide
		packages[filepath.Dir(path)] += s.code
		functions = append(functions, functionLengths(t, path)...)
		methods += bytes.Count(read(t, path), []byte("\nfunc (m *Manager) "))
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		lines := packages[dir]
		t.Logf("%6d lines of %s", lines, dir)
		if lines < minPackage && isLibrary(dir) {
			t.Errorf("package %s has %d lines, want at least %d", dir, lines, minPackage)
		}
	}
	slices.Sort(functions)
	isTotal(t, "lines of code", all.code)
	isTotal(t, "lines of tests", tests)
	isTotal(t, "lines of the largest package", slices.Max(slices.Collect(maps.Values(packages))))
	isTotal(t, "lines beyond 110 columns", all.wide)
	isTotal(t, "methods of provision.Manager", methods)
	isTotal(t, "lines of the median function", functions[len(functions)/2])
	t.Logf("comments are %.1f %% of the lines", 100*float64(all.comments)/float64(all.comments+all.code))
}

// TestWords counts the words of the pages.
func TestWords(t *testing.T) {
	words := 0
	for _, name := range pages(t) {
		words += len(strings.Fields(page(t, name)))
	}
	isTotal(t, "words of pages", words)
}

// isLibrary is false for programs and folders of tests.
func isLibrary(dir string) bool {
	return !strings.HasPrefix(dir, "cmd/") && !strings.HasPrefix(dir, "test/")
}

// goFiles are the repository's Go files, without what was built.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	must.Do(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			files = append(files, path)
		}
		return nil
	}))
	return files
}

// measure counts a file's lines that hold code, those that hold only a comment, and those
// that are beyond wideColumns.
func measure(t *testing.T, path string) (s sizes) {
	t.Helper()
	text := read(t, path)
	for line := range strings.Lines(string(text)) {
		columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) + 3*strings.Count(line, "\t")
		if columns > wideColumns {
			s.wide++
		}
	}
	code, comment := lineKinds(text)
	for line := range code {
		switch {
		case code[line]:
			s.code++
		case comment[line]:
			s.comments++
		}
	}
	return s
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// lineKinds says of each line of Go, from 1 on, whether code is on it, and whether a comment.
func lineKinds(text []byte) (code, comment []bool) {
	code = make([]bool, bytes.Count(text, []byte("\n"))+2)
	comment = make([]bool, len(code))
	file := token.NewFileSet().AddFile("", -1, len(text))
	var scan scanner.Scanner
	for scan.Init(file, text, nil, scanner.ScanComments); ; {
		pos, tok, literal := scan.Scan()
		kind := code
		switch {
		case tok == token.EOF:
			return code, comment
		case tok == token.SEMICOLON && literal == "\n":
			continue // the scanner put it there
		case tok == token.COMMENT:
			kind = comment
		}
		for line := file.Line(pos); line <= file.Line(pos)+strings.Count(literal, "\n"); line++ {
			kind[line] = true
		}
	}
}

// functionLengths are the lines of each function of a file.
func functionLengths(t *testing.T, path string) []int {
	t.Helper()
	fset := token.NewFileSet()
	f := must.Get(parser.ParseFile(fset, path, nil, parser.SkipObjectResolution))(t)
	var lengths []int
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
		}
	}
	return lengths
}
