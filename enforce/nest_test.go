package enforce

import (
	"fmt"
	"strings"
	"testing"
)

// TestNest: what a look finds fits in each other, whatever the order it was found in.
func TestNest(t *testing.T) {
	w := func(path string, class, parent wallClass) want { return want{path: path, class: class, parent: parent} }
	base := func(path string) want { return want{path: path, base: true} }
	for name, tt := range map[string]struct {
		wants, bases []want
		want         string
	}{
		"sorted":                         {[]want{w("/a/b", wallOpen, wallClosed), w("/a", wallClosed, wallOpen)}, nil, "/a closed<open, /a/b open<closed"},
		"not by bytes":                   {[]want{w("/a-b", wallClosed, wallOpen), w("/a/b", wallOpen, wallClosed), w("/a", wallClosed, wallOpen)}, nil, "/a closed<open, /a/b open<closed, /a-b closed<open"},
		"the strictest of one path":      {[]want{w("/a", wallReadOnly, wallOpen), w("/a", wallClosed, wallOpen)}, nil, "/a closed<open"},
		"behind a closed link":           {[]want{w("/a", wallClosed, wallOpen), w("/a/b", wallClosed, wallOpen), w("/a/c", wallReadOnly, wallOpen)}, nil, "/a closed<open"},
		"an island there":                {[]want{w("/a", wallClosed, wallOpen), w("/a/b", wallReadOnly, wallOpen), w("/a/b/c", wallOpen, wallReadOnly)}, nil, "/a closed<open"},
		"closed in what a link opens":    {[]want{w("/a", wallReadOnly, wallOpen), w("/a/b", wallClosed, wallOpen)}, nil, "/a read-only<open, /a/b closed<read-only"},
		"an island in nothing":           {[]want{w("/a", wallOpen, wallClosed)}, nil, ""},
		"mounts":                         {[]want{w("/a", wallReadOnly, wallOpen)}, []want{base("/"), base("/a/m"), base("/b")}, "/a read-only<open, /a/m read-only<read-only along"},
		"a mount in a closed one":        {[]want{w("/a", wallClosed, wallOpen)}, []want{base("/a/m")}, "/a closed<open"},
		"a mount that is denied":         {[]want{w("/a", wallReadOnly, wallOpen), w("/a/m", wallClosed, wallReadOnly)}, []want{base("/a/m")}, "/a read-only<open, /a/m closed<read-only along"},
		"a mount that is an island":      {[]want{w("/a", wallClosed, wallOpen), w("/a/m", wallOpen, wallClosed)}, []want{base("/a/m")}, "/a closed<open, /a/m open<closed along"},
		"a mount that is covered itself": {[]want{w("/m", wallClosed, wallOpen)}, []want{base("/m")}, "/m closed<open"},
	} {
		var got []string
		for _, w := range nest(tt.wants, tt.bases) {
			s := fmt.Sprintf("%s %v<%v", w.path, w.class, w.parent)
			if w.base {
				s += " along"
			}
			got = append(got, s)
		}
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
