package filerules

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// span is a range of characters in a class.
type span struct{ low, high rune }

// parseClass reads [ab-c] or [!ab-c] at the head of s, and rewrites it as a class of [path.Match]. It
// is compared with a name, which has no slash.
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
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteByte('^')
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

// classEnd is the end of the class at the start of a canonical glob.
func classEnd(s string) int {
	i := 1
	for i < len(s)-1 && s[i] != ']' {
		if s[i] == '\\' {
			i++
		}
		i++
	}
	return min(i, len(s)-1)
}
