package filerules

import (
	"iter"
	"regexp/syntax"
	"strings"
)

// index finds the matchers that may match a path without trying all of them. A matcher is filed
// under the directory that contains all its matches, or under three bytes that occur in all of
// them: whichever fewer matchers share.
type index struct {
	below map[string][]indexEntry
	bytes map[trigram][]indexEntry
	other []indexEntry
	// seen has a bit for each key of bytes, so that most of a path needs no look-up.
	seen [1 << 12 / 64]uint64
	// longest is the length of the longest key of below.
	longest int
}

type trigram [3]byte

// bit is the position of a trigram in index.seen.
func (t trigram) bit() (word, mask uint64) {
	h := (uint64(t[0])*31+uint64(t[1]))*31 + uint64(t[2])
	h = (h ^ h>>7) % (1 << 12)
	return h / 64, 1 << (h % 64)
}

// indexEntry is one matcher of one rule.
type indexEntry struct {
	rule    *CompiledRule
	matcher *Matcher
}

func buildIndex(rules []CompiledRule) index {
	x := index{below: map[string][]indexEntry{}, bytes: map[trigram][]indexEntry{}}
	inside, shared := map[string]int{}, map[trigram]int{}
	for f := range eachMatcher(rules) {
		inside[f.matcher.Prefix]++
		for t := range f.matcher.trigrams() {
			shared[t]++
		}
	}
	for f := range eachMatcher(rules) {
		t, n := f.matcher.rarest(shared)
		dir := f.matcher.Prefix
		switch {
		case dir != "/" && (f.matcher.Kind == KindSubtree || n == 0 || inside[dir] <= n):
			x.below[dir] = append(x.below[dir], f)
			x.longest = max(x.longest, len(dir))
		case n > 0:
			x.bytes[t] = append(x.bytes[t], f)
			word, mask := t.bit()
			x.seen[word] |= mask
		default:
			x.other = append(x.other, f)
		}
	}
	return x
}

func eachMatcher(rules []CompiledRule) iter.Seq[indexEntry] {
	return func(yield func(indexEntry) bool) {
		for i := range rules {
			for j := range rules[i].Matchers {
				if !rules[i].Inert && !yield(indexEntry{&rules[i], &rules[i].Matchers[j]}) {
					return
				}
			}
		}
	}
}

// rarest is the matcher's trigram that the fewest matchers have, and how many; 0 if
// it has none.
func (m *Matcher) rarest(shared map[trigram]int) (best trigram, n int) {
	for t := range m.trigrams() {
		if n == 0 || shared[t] < n || shared[t] == n && string(t[:]) < string(best[:]) {
			best, n = t, shared[t]
		}
	}
	return best, n
}

// winner is the rule of the lowest rank that is about op on the absolute, folded path p; nil if
// none is. tried is how many matchers were tried.
func (x *index) winner(p string, op Op) (best *CompiledRule, tried int) {
	try := func(list []indexEntry) { best, tried = first(best, list, p, op), tried+len(list) }
	try(x.other)
	for i := 1; i <= min(len(p), x.longest); i++ {
		if i == len(p) || p[i] == '/' {
			try(x.below[p[:i]])
		}
	}
	var asked map[trigram]bool
	if len(p) > shortPath {
		asked = map[trigram]bool{}
	}
	for i := 0; i+3 <= len(p); i++ {
		t := trigram{p[i], p[i+1], p[i+2]}
		if word, mask := t.bit(); x.seen[word]&mask != 0 && !asked[t] {
			try(x.bytes[t])
			if asked != nil {
				asked[t] = true
			}
		}
	}
	return best, tried
}

// shortPath is the length up to which a path's trigrams may repeat: trying the same matchers again
// costs less than recording which were tried.
const shortPath = 256

// first is best, or a rule of the list that comes before it and is about op on p.
func first(best *CompiledRule, list []indexEntry, p string, op Op) *CompiledRule {
	for _, f := range list {
		if f.rule.Ops&op != 0 && (best == nil || f.rule.rank < best.rank) && f.matcher.Match(p) {
			best = f.rule
		}
	}
	return best
}

// trigrams are the trigrams that occur in every match.
func (m *Matcher) trigrams() map[trigram]bool {
	set := map[trigram]bool{}
	for _, s := range m.required() {
		for i := 0; i+3 <= len(s); i++ {
			set[trigram{s[i], s[i+1], s[i+2]}] = true
		}
	}
	return set
}

// required are pieces of text that occur in every match.
func (m *Matcher) required() []string {
	if m.Kind == KindRegex {
		re, err := syntax.Parse(m.Regex.String(), syntax.Perl)
		if err != nil {
			return nil
		}
		return requiredOf(re.Simplify())
	}
	var all []string
	var run strings.Builder
	cut := func() {
		all = append(all, run.String())
		run.Reset()
	}
	for _, seg := range m.segs {
		if seg.deep {
			cut()
			continue
		}
		run.WriteByte('/')
		for s := seg.glob; s != ""; s = s[1:] {
			switch s[0] {
			case '\\':
				s = s[1:]
				run.WriteByte(s[0])
			case '[':
				s = s[classEnd(s):]
				cut()
			case '*', '?':
				cut()
			default:
				run.WriteByte(s[0])
			}
		}
	}
	cut()
	return all
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

// requiredOf are the literals that occur in every match of the expression.
func requiredOf(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return []string{string(re.Rune)}
		}
	case syntax.OpConcat:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, requiredOf(sub)...)
		}
		return all
	case syntax.OpCapture, syntax.OpPlus:
		return requiredOf(re.Sub[0])
	}
	return nil
}
