package pathclass

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
)

// TestNest: what a look finds fits in each other, whatever the order it was found in.
func TestNest(t *testing.T) {
	w := func(path string, class, parent filerules.Class) Place {
		return Place{Path: path, Class: class, Parent: parent}
	}
	base := func(path string) Place { return Place{Path: path, Base: true} }
	for name, tt := range map[string]struct {
		wants, bases []Place
		want         string
	}{
		"sorted":                        {[]Place{w("/a/b", filerules.Open, filerules.Closed), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open, /a/b open<closed"},
		"not by bytes":                  {[]Place{w("/a-b", filerules.Closed, filerules.Open), w("/a/b", filerules.Open, filerules.Closed), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open, /a/b open<closed, /a-b closed<open"},
		"the strictest of one path":     {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a", filerules.Closed, filerules.Open)}, nil, "/a closed<open"},
		"behind a closed link":          {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/b", filerules.Closed, filerules.Open), w("/a/c", filerules.ReadOnly, filerules.Open)}, nil, "/a closed<open"},
		"an exception there":            {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/b", filerules.ReadOnly, filerules.Open), w("/a/b/c", filerules.Open, filerules.ReadOnly)}, nil, "/a closed<open"},
		"closed in what a link opens":   {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a/b", filerules.Closed, filerules.Open)}, nil, "/a read-only<open, /a/b closed<read-only"},
		"an exception in nothing":       {[]Place{w("/a", filerules.Open, filerules.Closed)}, nil, ""},
		"mounts":                        {[]Place{w("/a", filerules.ReadOnly, filerules.Open)}, []Place{base("/"), base("/a/m"), base("/b")}, "/a read-only<open, /a/m read-only<read-only along"},
		"a mount in a closed one":       {[]Place{w("/a", filerules.Closed, filerules.Open)}, []Place{base("/a/m")}, "/a closed<open"},
		"a mount that is denied":        {[]Place{w("/a", filerules.ReadOnly, filerules.Open), w("/a/m", filerules.Closed, filerules.ReadOnly)}, []Place{base("/a/m")}, "/a read-only<open, /a/m closed<read-only along"},
		"a mount that is an exception":  {[]Place{w("/a", filerules.Closed, filerules.Open), w("/a/m", filerules.Open, filerules.Closed)}, []Place{base("/a/m")}, "/a closed<open, /a/m open<closed along"},
		"a mount that is masked itself": {[]Place{w("/m", filerules.Closed, filerules.Open)}, []Place{base("/m")}, "/m closed<open"},
	} {
		var got []string
		for _, w := range nest(tt.wants, tt.bases) {
			s := fmt.Sprintf("%s %v<%v", w.Path, w.Class, w.Parent)
			if w.Base {
				s += " along"
			}
			got = append(got, s)
		}
		expect.True(t, strings.Join(got, ", ") == tt.want, "%s: %q, want %q", name, got, tt.want)
	}
}
