package filerules

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// checkGlob checks a word of a command that has wildcards. It is denied if a deny matches its text,
// or if it and a deny can name the same path, unless an earlier allow matches its text. It may deny
// for names that do not exist.
func (rs *Ruleset) checkGlob(text string, word []segment) Verdict {
	prefix := newMatcher(word).Prefix
	overlaps := func(m Matcher) bool {
		near := chat.Within(m.Prefix, prefix) || chat.Within(prefix, m.Prefix)
		return m.Kind != KindRegex && near && overlap(m.segs, word)
	}
	return rs.winner(text, Bash, func(c *CompiledRule) bool {
		return c.Match(text) || c.Effect == Deny && slices.ContainsFunc(c.Matchers, overlaps)
	})
}

// wordSegments are the segments of an absolute shell glob, in which ** means *, and an invalid
// glob, such as [ without ], is a name.
func wordSegments(glob string) []segment {
	var segs []segment
	for part := range strings.SplitSeq(path.Clean(glob), "/") {
		if part == "" {
			continue
		}
		seg, err := parseSegment(part)
		if err != nil {
			seg = literalSegment(UnescapeGlob(part))
		}
		if seg.deep {
			seg = segment{glob: "*", wild: true}
		}
		segs = append(segs, seg)
	}
	return segs
}

// overlap reports whether the segments of a rule and those of a word have a path in common.
func overlap(rule, word []segment) bool {
	row := make([]bool, len(word)+1) // row[j]: rule[i:] and word[j:] overlap
	row[len(word)] = true
	for i := len(rule) - 1; i >= 0; i-- {
		next := make([]bool, len(word)+1)
		for j := len(word); j >= 0; j-- {
			if rule[i].deep {
				next[j] = row[j] || j < len(word) && next[j+1]
			} else {
				next[j] = j < len(word) && row[j+1] && rule[i].meets(word[j])
			}
		}
		row = next
	}
	return row[0]
}

// meets reports whether a segment of a rule matches the text of a word's, or the word's an example
// of the rule's: globs are not compared with globs. A word's segment of only * and ? matches no name
// here: otherwise ls * would be denied wherever anything in it is denied.
func (s segment) meets(word segment) bool {
	switch {
	case !word.wild:
		return matchName(s.glob, word.literal)
	case strings.Trim(word.glob, "*?") == "":
		return strings.Trim(s.glob, "*?") == ""
	case !s.wild && s.literal[0] == '.' && (word.glob[0] == '*' || word.glob[0] == '?'):
		return false
	}
	return matchName(s.glob, UnescapeGlob(word.glob)) ||
		matchName(word.glob, s.example())
}

// globTokens splits a canonical segment into characters, wildcards and classes.
func globTokens(s string) []string {
	var tokens []string
	for s != "" {
		_, n := utf8.DecodeRuneInString(s)
		switch s[0] {
		case '\\':
			_, n = utf8.DecodeRuneInString(s[1:])
			n++
		case '[':
			n = classEnd(s) + 1
		}
		tokens = append(tokens, s[:n])
		s = s[n:]
	}
	return tokens
}

// UnescapeGlob removes the backslashes that make wildcards literal.
func UnescapeGlob(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
