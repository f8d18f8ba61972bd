package shell

import "strings"

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
