package termsafe

import (
	"slices"
	"strconv"
	"strings"
)

// change erases, inserts, deletes and scrolls.
func (g *grid) change(params string, final byte, n int) {
	col := min(g.col, g.cols-1)
	line := g.line(g.row, 0)
	from := min(col, len(line))
	inside := g.row >= g.top && g.row <= g.bottom
	switch final {
	case 'J':
		g.erase(number(params, 0, 0))
	case 'K':
		g.eraseLine(number(params, 0, 0))
	case 'X':
		for i := from; i < min(len(line), from+n); i++ {
			line[i] = " "
		}
	case 'P':
		g.cells[g.row].cells = slices.Delete(line, from, min(len(line), from+n))
	case '@':
		if col < len(line) {
			wide := slices.Insert(line, col, blanks[:min(n, g.cols)]...)
			g.cells[g.row].cells = wide[:min(len(wide), g.cols)]
		}
	case 'L':
		if inside {
			g.down(g.row, n)
		}
	case 'M':
		if inside {
			g.up(g.row, n)
		}
	case 'S':
		g.scroll(n)
	case 'T':
		g.down(g.top, n)
	}
}

func (g *grid) erase(how int) {
	g.line(g.row, 0)
	switch how {
	case 0:
		g.eraseLine(0)
		g.cells = g.cells[:g.row+1]
	case 1:
		clear(g.cells[:g.row])
		g.eraseLine(1)
	default:
		g.cells = nil
	}
}

func (g *grid) eraseLine(how int) {
	line := g.line(g.row, 0)
	switch n := min(g.col, len(line)); how {
	case 0:
		g.cells[g.row] = row{cells: line[:n]}
	case 1:
		for i := range min(len(line), n+1) {
			line[i] = " "
		}
	default:
		g.cells[g.row] = row{}
	}
}

// second shows the second screen, empty, or the first again.
func (g *grid) second(on bool) {
	switch {
	case on && g.main == nil:
		g.savedRow, g.savedCol = g.row, g.col
		g.main, g.cells = append([]row{}, g.cells...), nil
	case !on && g.main != nil:
		g.cells, g.main = g.main, nil
		g.move(g.savedRow, g.savedCol)
	}
}

// number is the parameter i, or what stands for it if it is left out.
func number(params string, i, missing int) int {
	words := strings.Split(strings.TrimPrefix(params, "?"), ";")
	if i < len(words) {
		if n, err := strconv.Atoi(words[i]); err == nil {
			return n
		}
	}
	return missing
}
