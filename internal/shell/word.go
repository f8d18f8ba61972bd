package shell

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/chatd/chatd/filerules"
)

// word is what a word of a command may stand for. Text is escaped as package
// doublestar wants it; what cannot be known is a * in it.
type word struct {
	text string
	// glob: the text has a wildcard, or something unknown.
	glob bool
	// literal: some of the text is known.
	literal bool
}

// plain is the text of a word that is not a glob.
func (w word) plain() string { return filerules.UnescapeGlob(w.text) }

func known(s string) word { return word{text: filerules.EscapeGlob(s), literal: s != ""} }

// quoted is known text in which a ~ at the head is a name and no home. It is escaped, so
// that what reads the word's text tells the two apart.
func quoted(s string) word {
	w := known(s)
	if strings.HasPrefix(w.text, "~") {
		w.text = `\` + w.text
	}
	return w
}

// name is the text as a path: a ~ that was quoted is one in the working directory.
func (w word) name() string {
	if strings.HasPrefix(w.text, `\~`) {
		return "./" + w.plain()
	}
	return w.plain()
}

var unknown = word{text: "*", glob: true}

func (w word) join(o word) word {
	if len(w.text)+len(o.text) > 2*maxCommand {
		return unknown
	}
	return word{w.text + o.text, w.glob || o.glob, w.literal || o.literal}
}

// list are the parts of a value like PATH's, or the word itself.
func (w word) list() []word {
	parts := strings.Split(w.text, ":")
	if len(parts) == 1 || strings.Contains(w.text, "://") {
		return []word{w}
	}
	var all []word
	for _, p := range parts {
		all = append(all, word{p, w.glob, p != "" && p != "*"})
	}
	return all
}

// arg is what one argument stands for after braces are written out.
func (x *extractor) arg(sh *shell, w *syntax.Word) []word {
	if braces := countBraces(w); braces > maxBraces {
		x.tooFar = tooMuch("at most %d braces in a word, got %d", maxBraces, braces)
		return nil
	} else if braces > 0 {
		syntax.SplitBraces(w)
	}
	return x.words(sh, w, true)
}

// maxBraces bounds the braces of a word: the time to find their ends grows with their square.
const maxBraces = 256

func countBraces(w *syntax.Word) int {
	n := 0
	for _, part := range w.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			n += strings.Count(lit.Value, "{")
		}
	}
	return n
}

// words is what a word stands for; split says that unquoted blanks of a variable
// make several words of it.
func (x *extractor) words(sh *shell, w *syntax.Word, split bool) []word {
	if w == nil {
		return nil
	}
	var done []word
	open := newRow(word{})
	empty := true
	for i, part := range w.Parts {
		if p, ok := part.(*syntax.ParamExp); ok && split && p.Param != nil && p.Param.Value == "IFS" {
			if !empty {
				done, open, empty = append(done, x.ends(open)...), newRow(word{}), true
			}
			continue
		}
		x.goesOn(open, x.part(sh, part, i == 0, split))
		if empty = false; x.tooFar != nil {
			return nil
		}
	}
	if !empty {
		done = append(done, x.ends(open)...)
	}
	if !split {
		return done
	}
	var all []word
	for _, d := range done {
		all = append(all, d.fields()...)
	}
	return x.atMost(all)
}

// blankMark stands for a blank that splits words; no command has it, for NUL is refused.
const blankMark = "\x00"

func (w word) fields() []word {
	if !strings.Contains(w.text, blankMark) {
		return []word{w}
	}
	var all []word
	for _, part := range strings.Split(w.text, blankMark) {
		if part != "" {
			all = append(all, word{part, w.glob, strings.Trim(part, "*") != ""})
		}
	}
	return all
}

func (x *extractor) part(sh *shell, part syntax.WordPart, first, split bool) []word {
	switch p := part.(type) {
	case *syntax.Lit:
		return []word{unquoted(sh, p.Value, first)}
	case *syntax.SglQuoted:
		return []word{quoted(singleQuoted(p))}
	case *syntax.DblQuoted:
		all := newRow(word{literal: len(p.Parts) == 0})
		for _, q := range p.Parts {
			if lit, ok := q.(*syntax.Lit); ok {
				x.goesOn(all, []word{quoted(doubleQuoted(lit.Value))})
			} else if x.goesOn(all, x.part(sh, q, false, false)); x.tooFar != nil {
				return nil
			}
		}
		return x.ends(all)
	case *syntax.ParamExp:
		if !p.Short {
			x.scope.uses |= UseBraces
		}
		return x.param(sh, p, split)
	case *syntax.CmdSubst:
		x.scope.uses |= UseSubstitution
		if p.Backquotes {
			x.scope.uses |= UseBackquotes
		}
		return []word{x.substituted(sh, p, split)}
	case *syntax.ProcSubst:
		x.stmts(x.sub(sh), p.Stmts)
		return []word{unknown}
	case *syntax.BraceExp:
		if p.Sequence {
			return []word{unknown}
		}
		var all []word
		for _, e := range p.Elems {
			if len(e.Parts) == 0 {
				all = append(all, word{})
			}
			all = append(all, x.words(sh, e, split)...)
		}
		return x.atMost(all)
	}
	x.inner(sh, part)
	return []word{unknown}
}

// unquoted reads a literal outside quotes, whose wildcards are wildcards.
func unquoted(sh *shell, s string, first bool) word {
	var w word
	if head, rest, _ := strings.Cut(s, "/"); first && strings.HasPrefix(head, "~") &&
		!strings.ContainsAny(head, `\*?[`) {
		w = homeOf(sh, head)
		if s = s[len(head):]; rest == "" && s == "" {
			return w
		}
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteString(quoted(s[i : i+1]).text)
		case c == '*' || c == '?' || c == '[':
			w.glob = true
			b.WriteByte(c)
		case w.glob && strings.IndexByte("]!^-", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteString(filerules.EscapeGlob(s[i : i+1]))
		}
	}
	w.text += b.String()
	w.literal = w.literal || s != ""
	return w
}

// homeOf is what a tilde-prefix stands for. Another user's home is unknown: it is an absolute
// directory, and none of this user's.
func homeOf(sh *shell, prefix string) word {
	switch prefix {
	case "~", "~" + path.Base(sh.home):
		return known(sh.home)
	case "~+":
		return known(sh.cwd)
	}
	return word{text: "/*", glob: true, literal: true}
}

func doubleQuoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// singleQuoted is the text of '…', or of $'…' with its escapes.
func singleQuoted(q *syntax.SglQuoted) string {
	if !q.Dollar {
		return q.Value
	}
	text, _, err := expand.Format(nil, q.Value, nil)
	if err != nil {
		return q.Value
	}
	text, _, _ = strings.Cut(text, "\x00")
	return text
}
