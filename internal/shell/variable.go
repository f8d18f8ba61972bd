package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
