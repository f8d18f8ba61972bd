package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// row is what the parts of a word so far stand for: each of heads, with tail behind it.
// Parts that stand for one text are gathered in tail: put behind the heads one by one,
// each would have everything before it copied.
type row struct{ heads, tail []word }

func newRow(first word) *row { return &row{heads: []word{first}} }

// goesOn puts each of what the next part stands for behind each of the row.
func (x *extractor) goesOn(r *row, next []word) {
	if len(next) == 1 {
		r.tail = append(r.tail, next[0])
		return
	}
	r.heads, r.tail = x.cross(x.ends(r), next), nil
}

// ends are the words of the row.
func (x *extractor) ends(r *row) []word {
	if len(r.tail) == 0 {
		return r.heads
	}
	return x.cross(r.heads, []word{joinAll(r.tail)})
}

// cross puts each tail behind each head.
func (x *extractor) cross(heads, tails []word) []word {
	var all []word
	for _, h := range heads {
		for _, t := range tails {
			if len(all) == maxWords {
				return x.atMost(append(all, h))
			}
			w := h.join(t)
			if !x.spendJoined(len(w.text)) {
				return nil
			}
			all = append(all, w)
		}
	}
	return all
}

// atMost cuts a list that is too long; then nothing is known about the command.
func (x *extractor) atMost(list []word) []word {
	if len(list) <= maxWords {
		return list
	}
	x.tooFar = tooMuch("words that stand for at most %d", maxWords)
	return list[:maxWords]
}

// joinAll is join of many, which copies each once.
func joinAll(list []word) word {
	var all word
	if n := textOf(list); n > 2*maxCommand {
		return unknown
	} else if len(list) > 1 {
		var text strings.Builder
		text.Grow(n)
		for _, w := range list {
			text.WriteString(w.text)
			all.glob, all.literal = all.glob || w.glob, all.literal || w.literal
		}
		all.text = text.String()
		return all
	}
	return list[0]
}

// param is what a variable stands for, as far as the command says it.
func (x *extractor) param(sh *shell, p *syntax.ParamExp, split bool) []word {
	var all []word
	if p.Param != nil && !p.Excl && !p.Length && p.Slice == nil && p.Repl == nil {
		if all = sh.value(p.Param.Value); !x.spendJoined(textOf(all)) {
			return nil
		}
	}
	switch e := p.Exp; {
	case e != nil && e.Word != nil && isDefault(e.Op):
		all = append(all[:len(all):len(all)], x.words(sh, e.Word, false)...)
	case e != nil:
		if e.Word != nil {
			x.inner(sh, e.Word)
		}
		all = nil
	}
	if len(all) == 0 {
		return []word{unknown}
	}
	if !split {
		return all
	}
	out := make([]word, len(all))
	for i, w := range all {
		out[i] = w.unquote()
	}
	return out
}

// isDefault reports an operator that puts its word in the place of the value.
func isDefault(op syntax.ParExpOperator) bool {
	switch op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull,
		syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		return true
	}
	return false
}

// value is what the script, or every shell, has in a variable.
func (sh *shell) value(name string) []word {
	if v, ok := sh.vars[name]; ok {
		return v
	}
	switch name {
	case "HOME":
		return []word{known(sh.home)}
	case "PWD":
		return []word{known(sh.cwd)}
	}
	return nil
}

// unquote is what a value becomes outside quotes: blanks split it, wildcards are wildcards.
func (w word) unquote() word {
	if w.glob {
		return w
	}
	s := w.plain()
	if !strings.ContainsAny(s, " \t\n*?[") {
		return w
	}
	text := strings.NewReplacer(" ", blankMark, "\t", blankMark, "\n", blankMark).Replace(s)
	return word{text, strings.ContainsAny(s, "*?["), w.literal}
}
