package filerules

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// MaxRules bounds the rules of a file, the globs of each counted; MaxPattern bounds the bytes of a
// pattern, and maxAlternatives the globs that its braces stand for.
const (
	MaxRules        = 1000
	MaxPattern      = 4096
	maxAlternatives = 256
)

// anchor is the base of an alternative's segments.
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
	// glob is the segment for path.Match: canonical, with literals escaped.
	glob string
	wild bool
	// deep is a ** by itself.
	deep bool
}

// alternative is one glob after its pattern's braces are expanded.
type alternative struct {
	anchor anchor
	segs   []segment
}

// pattern is a parsed pattern that still has ~ and relative names in it.
type pattern struct {
	alts  []alternative
	regex *regexp.Regexp
}

// Globs are the globs that a pattern stands for, with its braces written out; none for an
// expression. Everything that is wrong with a pattern is found here.
func Globs(text string) ([]string, error) {
	globs := []string{}
	err := checkText(text)
	if err == nil && !isRegex(text) {
		globs, err = braces(text)
	}
	if err == nil {
		_, err = parsePattern(text, globs)
	}
	return globs, err
}

func isRegex(s string) bool { return len(s) > 2 && s[0] == '/' && s[len(s)-1] == '/' }

func checkText(s string) error {
	switch {
	case s == "" || s == "//":
		return errors.New("want a pattern, got an empty one")
	case len(s) > MaxPattern:
		return fmt.Errorf("want a pattern of at most %d bytes, got %d", MaxPattern, len(s))
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("want a pattern without NUL, got %s", chat.Quote(s))
	case strings.ContainsRune(s, utf8.RuneError):
		return fmt.Errorf("want a pattern in UTF-8, got %s", chat.Quote(s))
	}
	return nil
}

// parsePattern reads a pattern whose braces are written out as globs.
func parsePattern(s string, globs []string) (pattern, error) {
	if err := checkText(s); err != nil {
		return pattern{}, err
	}
	switch n := len(globs); {
	case isRegex(s) && n == 0:
		return parseRegex(s)
	case isRegex(s) || n == 0 || n > maxAlternatives:
		return pattern{}, fmt.Errorf("want the globs of a pattern, got %d of %s", n, chat.Quote(s))
	}
	var p pattern
	for _, g := range globs {
		if err := checkText(g); err != nil && g != "" {
			return pattern{}, err
		}
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

// push appends a segment and folds: .. removes a name, ** after ** adds nothing.
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
	return segment{literal: name, glob: EscapeGlob(name)}
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
			glob.WriteString(EscapeGlob(rest[:n]))
			literal.WriteString(rest[:n])
			rest = rest[n:]
		}
	}
	if wild {
		if _, err := path.Match(glob.String(), ""); err != nil {
			return segment{}, errors.New("want a glob")
		}
		return segment{glob: glob.String(), wild: true}, nil
	}
	return segment{literal: literal.String(), glob: glob.String()}, nil
}

var escaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`, `\`, `\\`)

// EscapeGlob puts a backslash before each special character of a glob.
func EscapeGlob(s string) string { return escaper.Replace(s) }
