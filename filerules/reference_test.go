package filerules_test

import (
	"path"
	"regexp"
	"strings"
	"testing"

	. "github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/must"
)

// refMatch defines the meaning of a pattern by trying all possibilities, without code of the
// package.
func refMatch(pattern, home, cwd, name string) bool {
	if len(pattern) > 2 && pattern[0] == '/' && pattern[len(pattern)-1] == '/' {
		return regexp.MustCompile(pattern[1 : len(pattern)-1]).MatchString(name)
	}
	for _, glob := range refBraces(pattern) {
		if refGlob(glob, home, cwd, name) {
			return true
		}
	}
	return false
}

func refGlob(glob, home, cwd, name string) bool {
	segs := []string{}
	for _, s := range strings.Split(name, "/") {
		if s != "" {
			segs = append(segs, s)
		}
	}
	wild := refWild(glob)
	if !strings.Contains(glob, "/") && glob != "~" && glob != "." && glob != ".." {
		if glob == "**" {
			return true
		}
		for i, s := range segs {
			if (i == len(segs)-1 || !wild) && refSegment([]rune(glob), []rune(s)) {
				return true
			}
		}
		return false
	}
	var want []string
	base, rest := cwd, glob
	if glob == "~" || strings.HasPrefix(glob, "~/") {
		base, rest = home, glob[1:]
	} else if strings.HasPrefix(glob, "/") || strings.HasPrefix(glob, "**/") {
		base = "/"
	}
	for _, s := range strings.Split(base, "/") {
		want = refPush(want, refQuote(s))
	}
	for _, s := range strings.Split(rest, "/") {
		want = refPush(want, s)
	}
	if !wild {
		want = append(want, "**")
	}
	return refSegments(want, segs)
}

func refQuote(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString(`\` + string(r))
	}
	if s == "" || s == "." || s == ".." {
		return s
	}
	return b.String()
}

func refPush(list []string, s string) []string {
	switch {
	case s == "" || s == ".":
		return list
	case s == ".." && len(list) > 0:
		return list[: len(list)-1 : len(list)-1]
	case s == "..":
		return list
	}
	return append(list, s)
}

func refSegments(want, have []string) bool {
	if len(want) == 0 {
		return len(have) == 0
	}
	if want[0] == "**" {
		for i := 0; i <= len(have); i++ {
			if refSegments(want[1:], have[i:]) {
				return true
			}
		}
		return false
	}
	return len(have) > 0 && refSegment([]rune(want[0]), []rune(have[0])) && refSegments(want[1:], have[1:])
}

func refSegment(want, have []rune) bool {
	if len(want) == 0 {
		return len(have) == 0
	}
	switch want[0] {
	case '*':
		for i := 0; i <= len(have); i++ {
			if refSegment(want[1:], have[i:]) {
				return true
			}
		}
		return false
	case '?':
		return len(have) > 0 && refSegment(want[1:], have[1:])
	case '[':
		end, in := refClass(want, have)
		return len(have) > 0 && in && refSegment(want[end:], have[1:])
	case '\\':
		want = want[1:]
	}
	return len(have) > 0 && want[0] == have[0] && refSegment(want[1:], have[1:])
}

// refClass reads the class at the head of want: where it ends, and whether the head
// of have is in it.
func refClass(want, have []rune) (end int, in bool) {
	i, not := 1, false
	if want[i] == '!' || want[i] == '^' {
		i, not = 2, true
	}
	char := func() rune {
		if want[i] == '\\' {
			i++
		}
		i++
		return want[i-1]
	}
	for first := true; first || want[i] != ']'; first = false {
		low := char()
		high := low
		if want[i] == '-' && want[i+1] != ']' {
			i++
			high = char()
		}
		if len(have) > 0 && low <= have[0] && have[0] <= high {
			in = true
		}
	}
	return i + 1, in != not
}

func refWild(glob string) bool {
	for i := 0; i < len(glob); i++ {
		switch glob[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		}
	}
	return false
}

// refBraces expands the first brace that closes, and then the results.
func refBraces(s string) []string {
	depth, begin, parts := 0, 0, []string(nil)
	from := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case s[i] == '[':
			if end := refClassEnd(s[i:]); end > 0 {
				i += end - 1
			}
		case s[i] == '{':
			if depth++; depth == 1 {
				from, begin = i, i+1
			}
		case s[i] == ',' && depth == 1:
			parts = append(parts, s[begin:i])
			begin = i + 1
		case s[i] == '}' && depth > 0:
			if depth--; depth == 0 {
				var all []string
				for _, p := range append(parts, s[begin:i]) {
					all = append(all, refBraces(s[:from]+p+s[i+1:])...)
				}
				return all
			}
		}
	}
	return []string{s}
}

func refClassEnd(s string) int {
	i := 1
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		i++
	}
	for first := true; i < len(s); first = false {
		if s[i] == ']' && !first {
			return i + 1
		}
		if s[i] == '\\' {
			i++
		}
		i++
	}
	return 0
}

// FuzzMatch compares the matcher with the reference.
func FuzzMatch(f *testing.F) {
	for _, s := range sentences {
		for p := range strings.FieldsSeq(s.covers + " " + s.not) {
			f.Add(s.pattern, p)
		}
	}
	// A matcher may let these match the root, or a folder for what is below it.
	f.Add("/*", "/")
	f.Add("/*/**", "/")
	f.Add("/d*/**", "/d")
	for _, p := range []string{"[/- ", "/[]/", "/00()/", "\x7f\x00", "\v\xa4", "{,,,}0", "*???", "/$*/"} {
		f.Add(p, "0")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		// The reference tries all ways in which stars may match.
		if len(pattern) > 40 || strings.Count(pattern, "*") > 5 || len(name) > 60 || name == "" || strings.IndexByte(name, 0) >= 0 {
			return
		}
		globs, err := Globs(pattern)
		if err != nil {
			return
		}
		s := Scope{Home: "/home/u", Cwd: "/home/u/w"}
		name = Fold(s.Home, s.Cwd, name)
		deny := Rule{Effect: Deny, Pattern: pattern, Globs: globs, Ops: All, Layer: LayerGlobalDeny}
		p, err := New(Policy{Mode: DenyWins, Global: Section{Deny: []Rule{deny}}})
		if err == nil {
			p, err = ReadCompiled(p.Compiled())
		}
		must.True(t, err == nil, "%q has globs and is refused: %v", pattern, err)
		rs := must.Get(p.For(s))(t)
		want := refMatch(pattern, s.Home, s.Cwd, name)
		if got := rs.Rules()[0].Match(name); got != want {
			t.Fatalf("%q on %q: %v, the reference says %v; %+v", pattern, name, got, want, rs.Rules()[0].Matchers)
		}
		must.True(t, path.Clean(name) == name, "%q is not folded", name)
	})
}
