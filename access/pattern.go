package access

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/chatd/chatd/chat"
)

// maxAlternatives bounds what the braces of one pattern are written out to.
const maxAlternatives = 256

// anchor is what the segments of an alternative stand below.
type anchor int

const (
	anchorRoot anchor = iota // /a or **/a
	anchorHome               // ~ or ~/a
	anchorCwd                // a/b
	anchorName               // a: the last segment of any path
)

// segment is a part of a pattern between slashes.
type segment struct {
	// literal is the name, for a segment without wildcards.
	literal string
	// glob is the segment for doublestar: canonical, everything escaped that is literal.
	glob string
	wild bool
	// deep is a ** by itself.
	deep bool
}

// alternative is what a glob is after its braces are written out.
type alternative struct {
	anchor anchor
	segs   []segment
}

// pattern is a parsed pattern that still has ~ and relative names in it.
type pattern struct {
	alts  []alternative
	regex *regexp.Regexp
}

// parsePattern reads a pattern; everything that could fail later fails here.
func parsePattern(s string) (pattern, error) {
	switch {
	case s == "" || s == "//":
		return pattern{}, errors.New("want a pattern, got an empty one")
	case len(s) > maxPattern:
		return pattern{}, fmt.Errorf("want a pattern of at most %d bytes, got %d", maxPattern, len(s))
	case strings.IndexByte(s, 0) >= 0:
		return pattern{}, fmt.Errorf("want a pattern without NUL, got %s", chat.Quote(s))
	case strings.ContainsRune(s, utf8.RuneError):
		return pattern{}, fmt.Errorf("want a pattern in UTF-8, got %s", chat.Quote(s))
	case len(s) > 2 && s[0] == '/' && s[len(s)-1] == '/':
		return parseRegex(s)
	}
	globs, err := braces(s)
	if err != nil {
		return pattern{}, err
	}
	var p pattern
	for _, g := range globs {
		alt, err := parseGlob(g)
		if err != nil {
			return pattern{}, fmt.Errorf("%w, got %s", err, chat.Quote(s))
		}
		p.alts = append(p.alts, alt)
	}
	return p, nil
}

func parseRegex(s string) (pattern, error) {
	re, err := regexp.Compile(s[1 : len(s)-1])
	if err != nil {
		return pattern{}, fmt.Errorf("want a regular expression between the slashes (RE2; a directory has no slash at its end), got %s: %v", chat.Quote(s), err)
	}
	return pattern{regex: re}, nil
}

// parseGlob reads a glob without braces.
func parseGlob(s string) (alternative, error) {
	alt := alternative{anchor: anchorCwd}
	switch {
	case s == "":
		return alt, errors.New("want no empty pattern in braces")
	case strings.HasPrefix(s, "/"), strings.HasPrefix(s, "**/"):
		alt.anchor = anchorRoot
	case s == "~" || strings.HasPrefix(s, "~/"):
		alt.anchor, s = anchorHome, s[1:]
	case !strings.Contains(s, "/") && s != "." && s != "..":
		alt.anchor = anchorName
	}
	wild := false
	for _, part := range strings.Split(s, "/") {
		if part == "" || part == "." {
			continue
		}
		seg, err := parseSegment(part)
		if err != nil {
			return alt, err
		}
		if wild && seg.literal == ".." {
			return alt, errors.New("want no .. after a wildcard")
		}
		wild = wild || seg.wild
		alt.segs = push(alt.segs, seg)
	}
	if !wild {
		alt.segs = push(alt.segs, segment{glob: "**", wild: true, deep: true})
	}
	return alt, nil
}

// push appends a segment and folds: .. takes a name away, ** after ** adds nothing.
func push(segs []segment, seg segment) []segment {
	last := len(segs) - 1
	switch {
	case seg.literal == ".." && last >= 0 && segs[last].literal != ".." && !segs[last].wild:
		return segs[:last]
	case seg.deep && last >= 0 && segs[last].deep:
		return segs
	}
	return append(segs, seg)
}

func literalSegment(name string) segment {
	return segment{literal: name, glob: escapeGlob(name)}
}

// parseSegment reads one segment into its canonical form.
func parseSegment(s string) (segment, error) {
	if s == "**" {
		return segment{glob: "**", wild: true, deep: true}, nil
	}
	var glob, literal strings.Builder
	wild := false
	for rest := s; rest != ""; {
		switch c := rest[0]; c {
		case '*', '?':
			wild = true
			if c == '?' || !strings.HasSuffix(glob.String(), "*") || strings.HasSuffix(glob.String(), `\*`) {
				glob.WriteByte(c)
			}
			rest = rest[1:]
		case '[':
			class, n, err := parseClass(rest)
			if err != nil {
				return segment{}, err
			}
			wild = true
			glob.WriteString(class)
			rest = rest[n:]
		case '\\':
			if len(rest) == 1 {
				return segment{}, errors.New(`want a character after \`)
			}
			rest = rest[1:]
			fallthrough
		default:
			_, n := utf8.DecodeRuneInString(rest)
			glob.WriteString(escapeGlob(rest[:n]))
			literal.WriteString(rest[:n])
			rest = rest[n:]
		}
	}
	if wild {
		if !doublestar.ValidatePattern(glob.String()) {
			return segment{}, errors.New("want a glob")
		}
		return segment{glob: glob.String(), wild: true}, nil
	}
	return segment{literal: literal.String(), glob: glob.String()}, nil
}

// span is a range of characters in a class.
type span struct{ low, high rune }

// parseClass reads [ab-c] or [!ab-c] at the head of s, and writes it so that it
// never matches a slash, which doublestar lets a class do.
func parseClass(s string) (class string, size int, err error) {
	bad := errors.New("want a class like [abc], [a-z] or [!abc]")
	i, negated := 1, false
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		i, negated = 2, true
	}
	var spans []span
	for first := true; ; first = false {
		if i >= len(s) {
			return "", 0, bad
		}
		if s[i] == ']' && !first {
			break
		}
		if s[i] == '[' && i+1 < len(s) && strings.ContainsRune(":.=", rune(s[i+1])) {
			return "", 0, errors.New("want characters or ranges in a class, not [:names:]")
		}
		low, n := classRune(s[i:])
		i += n
		high := low
		if i+1 < len(s) && s[i] == '-' && s[i+1] != ']' {
			high, n = classRune(s[i+1:])
			i += 1 + n
		}
		if low > high || n == 0 {
			return "", 0, bad
		}
		spans = append(spans, span{low, high})
	}
	return writeClass(spans, negated), i + 1, nil
}

func classRune(s string) (rune, int) {
	if len(s) > 1 && s[0] == '\\' {
		r, n := utf8.DecodeRuneInString(s[1:])
		return r, n + 1
	}
	return utf8.DecodeRuneInString(s)
}

func writeClass(spans []span, negated bool) string {
	if negated {
		spans = append(spans, span{'/', '/'})
	} else {
		spans = withoutSlash(spans)
	}
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteByte('!')
	}
	for _, x := range spans {
		b.WriteString(`\` + string(x.low))
		if x.high > x.low {
			b.WriteString(`-\` + string(x.high))
		}
	}
	b.WriteByte(']')
	return b.String()
}

func withoutSlash(spans []span) []span {
	var out []span
	for _, x := range spans {
		if x.low > '/' || x.high < '/' {
			out = append(out, x)
			continue
		}
		if x.low < '/' {
			out = append(out, span{x.low, '/' - 1})
		}
		if x.high > '/' {
			out = append(out, span{'/' + 1, x.high})
		}
	}
	return out
}

const globSpecial = `*?[]{}\`

func escapeGlob(s string) string {
	if !strings.ContainsAny(s, globSpecial) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(globSpecial, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// braces writes {a,b} out, as a shell does before it looks at anything else.
func braces(s string) ([]string, error) {
	done, todo := []string(nil), []string{s}
	for len(todo) > 0 {
		head := todo[0]
		todo = todo[1:]
		from, parts, to, err := firstBrace(head)
		if err != nil {
			return nil, fmt.Errorf("%w, got %s", err, chat.Quote(s))
		}
		if parts == nil {
			done = append(done, head)
			continue
		}
		if len(done)+len(todo)+len(parts) > maxAlternatives {
			return nil, fmt.Errorf("want braces that stand for at most %d patterns, got %s", maxAlternatives, chat.Quote(s))
		}
		var out []string
		for _, p := range parts {
			out = append(out, head[:from]+p+head[to:])
		}
		todo = slices.Concat(out, todo)
	}
	return done, nil
}

// firstBrace finds the first brace and its parts; no parts if there is none.
func firstBrace(s string) (from int, parts []string, to int, err error) {
	depth, begin := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			if _, n, err := parseClass(s[i:]); err == nil {
				i += n - 1
			}
		case '{':
			if depth++; depth == 1 {
				from, begin = i, i+1
			}
		case ',':
			if depth == 1 {
				parts = append(parts, s[begin:i])
				begin = i + 1
			}
		case '}':
			if depth == 0 {
				return 0, nil, 0, errors.New(`want { before }, or \}`)
			}
			if depth--; depth > 0 {
				continue
			}
			if parts == nil {
				return 0, nil, 0, errors.New(`want {a,b}, or \{ and \}`)
			}
			return from, append(parts, s[begin:i]), i + 1, nil
		}
	}
	if depth > 0 {
		return 0, nil, 0, errors.New(`want } after {, or \{`)
	}
	return 0, nil, 0, nil
}
