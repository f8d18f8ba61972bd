package exposure

import (
	"fmt"
	"regexp/syntax"

	"github.com/chatd/chatd/chat"
)

// reacher reports whether any text that begins with a given one can match an expression. Package
// regexp cannot; without a reacher a grant like ^/srv/[^/]+/report$ would walk all of /srv.
type reacher struct{ prog *syntax.Prog }

func newReacher(pattern string) (reacher, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return reacher{}, fmt.Errorf("cannot use %s: %w", chat.Quote(pattern), err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return reacher{}, fmt.Errorf("cannot use %s: %w", chat.Quote(pattern), err)
	}
	return reacher{prog}, nil
}

// reaches follows every way through the program over text, which begins at the expression's
// anchor, and reports whether one is still open after it. The text behind it is unknown, so
// that a word may end there or not.
func (r reacher) reaches(text string) bool {
	runes := append([]rune(text), 'x')
	now := map[uint32]bool{}
	if r.follow(now, uint32(r.prog.Start), syntax.EmptyOpContext(-1, runes[0])) {
		return true
	}
	for i, c := range runes[:len(runes)-1] {
		next := map[uint32]bool{}
		context := syntax.EmptyOpContext(c, runes[i+1])
		if i == len(runes)-2 {
			context |= syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
		}
		for pc := range now {
			if ins := &r.prog.Inst[pc]; ins.MatchRune(c) && r.follow(next, ins.Out, context) {
				return true
			}
		}
		now = next
	}
	for pc := range now {
		if op := r.prog.Inst[pc].Op; op != syntax.InstAlt && op != syntax.InstAltMatch {
			return true
		}
	}
	return false
}

// follow adds to now the instructions that pc reaches without reading; true means a match, which
// any text may follow.
func (r reacher) follow(now map[uint32]bool, pc uint32, context syntax.EmptyOp) bool {
	ins := &r.prog.Inst[pc]
	switch ins.Op {
	case syntax.InstMatch:
		return true
	case syntax.InstFail:
		return false
	case syntax.InstAlt, syntax.InstAltMatch:
		if now[pc] {
			return false // a loop that reads nothing
		}
		now[pc] = true
		return r.follow(now, ins.Out, context) || r.follow(now, ins.Arg, context)
	case syntax.InstCapture, syntax.InstNop:
		return r.follow(now, ins.Out, context)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(ins.Arg)&^context != 0 {
			return false
		}
		return r.follow(now, ins.Out, context)
	}
	now[pc] = true
	return false
}
