package access

import (
	"regexp/syntax"
	"strings"
)

// index finds the matchers that may be about a path without asking all of them.
// What stands below a known directory is filed under that directory. The rest is
// filed under three bytes that every path it matches has in it: those of its
// literal parts that the fewest others have.
type index struct {
	below map[string][]filed
	bytes map[trigram][]filed
	other []filed
}

type trigram [3]byte

// filed is one matcher of one rule.
type filed struct {
	rule    *Compiled
	matcher *Matcher
}

func buildIndex(rules []Compiled) index {
	x := index{below: map[string][]filed{}, bytes: map[trigram][]filed{}}
	var rest []filed
	for i := range rules {
		if rules[i].Inert {
			continue
		}
		for j := range rules[i].Matchers {
			f := filed{&rules[i], &rules[i].Matchers[j]}
			if p := f.matcher.Prefix; p != "/" {
				x.below[p] = append(x.below[p], f)
			} else {
				rest = append(rest, f)
			}
		}
	}
	count := map[trigram]int{}
	for _, f := range rest {
		for t := range f.matcher.trigrams() {
			count[t]++
		}
	}
	for _, f := range rest {
		best, found := trigram{}, false
		for t := range f.matcher.trigrams() {
			if !found || count[t] < count[best] || count[t] == count[best] && string(t[:]) < string(best[:]) {
				best, found = t, true
			}
		}
		if found {
			x.bytes[best] = append(x.bytes[best], f)
		} else {
			x.other = append(x.other, f)
		}
	}
	return x
}

// winner is the rule of the lowest rank that is about op on the absolute, folded
// path p; nil if none is.
func (x *index) winner(p string, op Op) *Compiled {
	var best *Compiled
	try := func(list []filed) {
		for _, f := range list {
			if f.rule.Ops&op != 0 && (best == nil || f.rule.rank < best.rank) && f.matcher.Match(p) {
				best = f.rule
			}
		}
	}
	try(x.other)
	for i := 1; len(x.below) > 0 && i < len(p); i++ {
		if p[i] == '/' {
			try(x.below[p[:i]])
		}
	}
	if p != "/" {
		try(x.below[p])
	}
	if len(x.bytes) > 0 {
		for i := 0; i+3 <= len(p); i++ {
			try(x.bytes[trigram{p[i], p[i+1], p[i+2]}])
		}
	}
	return best
}

// trigrams are the three bytes that each path has which the matcher matches.
func (m *Matcher) trigrams() map[trigram]bool {
	set := map[trigram]bool{}
	for _, s := range m.required() {
		for i := 0; i+3 <= len(s); i++ {
			set[trigram{s[i], s[i+1], s[i+2]}] = true
		}
	}
	return set
}

// required are pieces of text that each path has which the matcher matches.
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
				s = s[strings.IndexByte(classSkip(s), ']'):]
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

// classSkip hides what is escaped in a glob, so that the end of a class can be found.
func classSkip(s string) string {
	b := []byte(s)
	for i := 0; i+1 < len(b); i++ {
		if b[i] == '\\' {
			b[i], b[i+1] = ' ', ' '
			i++
		}
	}
	return string(b)
}

// requiredOf are the literals that stand in every text the expression matches.
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
