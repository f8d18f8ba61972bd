package filerules

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/chatd/chatd/chat"
)

// checkGlob checks a word of a command that has wildcards. It is denied if a deny and the word have
// a name in common, unless an earlier allow covers the word as a pattern. It may deny for names
// that do not exist. It also returns how many steps it took. After more than most it stops without
// a verdict, because an earlier rule may be left.
func (rs *Ruleset) checkGlob(glob string, max int) (v Verdict, steps int) {
	w := newGlobbed(glob)
	var best *CompiledRule
	for i := range rs.rules {
		c := &rs.rules[i]
		if c.Inert || c.Ops&Bash == 0 || best != nil && best.rank <= c.rank {
			continue
		}
		if c.Effect == Allow && w.isIn(c) || c.Effect == Deny && w.overlaps(c) {
			best = c
		}
		if w.steps > max {
			return verdict(nil, w.name), w.steps
		}
	}
	return verdict(best, w.name), w.steps
}

// globWord is a word of a command that has wildcards.
type globWord struct {
	name   string
	prefix string // the directory that contains all its matches
	segs   []segment
	tokens [][]string // of each segment that has wildcards
	steps  int        // taken so far, each some nanoseconds
}

func newGlobbed(glob string) *globWord {
	w := &globWord{name: UnescapeGlob(glob), segs: wordSegments(glob)}
	w.prefix = newMatcher(w.segs).Prefix
	w.tokens = make([][]string, len(w.segs))
	for i, seg := range w.segs {
		if seg.wild {
			w.tokens[i] = globTokens(seg.glob)
		}
	}
	return w
}

// isIn reports whether the rule covers the word as a pattern.
func (w *globWord) isIn(c *CompiledRule) bool {
	w.steps += len(c.Matchers) * len(w.name)
	return c.Match(w.name)
}

// overlaps reports whether one name can match both the rule and the word.
func (w *globWord) overlaps(c *CompiledRule) bool {
	for i := range c.Matchers {
		m := &c.Matchers[i]
		w.steps++
		switch {
		case m.Kind == KindRegex:
			w.steps += len(w.name)
			if m.Regex.MatchString(w.name) {
				return true
			}
		case chat.Within(m.Prefix, w.prefix) || chat.Within(w.prefix, m.Prefix):
			if w.overlap(m.segs) {
				return true
			}
		}
	}
	return false
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

// overlap reports whether the segments of a rule and those of the word have a path in common.
func (w *globWord) overlap(rule []segment) bool {
	word := w.segs
	w.steps += len(rule) * len(word)
	row := make([]bool, len(word)+1) // row[j]: rule[i:] and word[j:] overlap
	row[len(word)] = true
	for i := len(rule) - 1; i >= 0; i-- {
		next := make([]bool, len(word)+1)
		for j := len(word); j >= 0; j-- {
			if rule[i].deep {
				next[j] = row[j] || j < len(word) && next[j+1]
			} else {
				next[j] = j < len(word) && row[j+1] && w.sameName(rule[i], j)
			}
		}
		row = next
	}
	return row[0]
}

// sameName reports whether a segment of a rule and the word's of that number have a name in common.
// A word's segment of only * and ? matches no name here: otherwise ls * would be denied wherever
// anything in it is denied.
func (w *globWord) sameName(rule segment, number int) bool {
	word := w.segs[number]
	if rule.wild || word.wild {
		w.steps += len(rule.glob) * len(word.glob)
	}
	switch {
	case !word.wild && !rule.wild:
		return rule.literal == word.literal
	case !word.wild:
		return doublestar.MatchUnvalidated(rule.glob, word.literal)
	case strings.Trim(word.glob, "*?") == "":
		return strings.Trim(rule.glob, "*?") == ""
	case !rule.wild:
		hidden := rule.literal[0] == '.' && (word.glob[0] == '*' || word.glob[0] == '?')
		return !hidden && doublestar.MatchUnvalidated(word.glob, rule.literal)
	}
	return meet(globTokens(rule.glob), w.tokens[number])
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

// meet reports whether two globs without slash have a name in common. It assumes that two classes
// do.
func meet(a, b []string) bool {
	row := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		next := make([]bool, len(b)+1)
		for j := len(b); j >= 0; j-- {
			switch {
			case i == len(a) && j == len(b):
				next[j] = true
			case i < len(a) && a[i] == "*":
				next[j] = row[j] || j < len(b) && next[j+1]
			case j < len(b) && b[j] == "*":
				next[j] = next[j+1] || i < len(a) && row[j]
			case i < len(a) && j < len(b):
				next[j] = row[j+1] && meetOne(a[i], b[j])
			}
		}
		row = next
	}
	return row[0]
}

func meetOne(a, b string) bool {
	wildA, wildB := a == "?" || a[0] == '[', b == "?" || b[0] == '['
	switch {
	case wildA && wildB || a == "?" || b == "?":
		return true
	case !wildA && !wildB:
		return a == b
	case wildA:
		return doublestar.MatchUnvalidated(a, UnescapeGlob(b))
	}
	return doublestar.MatchUnvalidated(b, UnescapeGlob(a))
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
