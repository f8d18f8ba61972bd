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
)

// These bounds may only fall. "make layout" prints the figures.
const (
	maxCode     = 76_374 // lines of code, without tests
	maxPackage  = 6_520  // of one package
	minPackage  = 100    // of one that is no program: a smaller topic belongs to its user
	maxMedian   = 11     // lines of the median function
	maxColumns  = 100    // of a line of a page; a tab counts as 4
	wideColumns = 110    // of a line of code; maxWide lines outside tests may have more
	maxWide     = 1_121
)

// sizes are the figures of some Go files.
type sizes struct {
	code, comments, wide int
}

func TestSizes(t *testing.T) {
	var all sizes
	packages := map[string]int{}
	var functions []int
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		s := measure(t, path)
		all.code += s.code
		all.comments += s.comments
		all.wide += s.wide
		packages[filepath.Dir(path)] += s.code
		functions = append(functions, functionLengths(t, path)...)
	}
	atMost(t, "the code without tests", all.code, maxCode)
	atMost(t, "code beyond 110 columns", all.wide, maxWide)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		atMost(t, "package "+dir, packages[dir], maxPackage)
		if packages[dir] < minPackage && isLibrary(dir) {
			t.Errorf("package %s has %d lines, want at least %d", dir, packages[dir], minPackage)
		}
	}
	slices.Sort(functions)
	atMost(t, "the median function", functions[len(functions)/2], maxMedian)
	t.Logf("comments are %.1f %% of the lines", 100*float64(all.comments)/float64(all.comments+all.code))
}

// isLibrary is false for programs and folders of tests.
func isLibrary(dir string) bool {
	return !strings.HasPrefix(dir, "cmd/") && !strings.HasPrefix(dir, "test/")
}

// atMost fails the test if lines are more than the bound.
func atMost(t *testing.T, what string, lines, bound int) {
	t.Helper()
	if lines > bound {
		t.Errorf("%s: %d lines, want at most %d", what, lines, bound)
	}
	t.Logf("%s: %d lines of at most %d", what, lines, bound)
}

// goFiles are the repository's Go files, without what was built.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go":
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
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
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
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
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var lengths []int
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
		}
	}
	return lengths
}
