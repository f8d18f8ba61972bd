package termsafe

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxRendered bounds what [Render] gives back, in bytes: of more, the end.
const maxRendered = 256 << 10

// maxRead bounds what Render reads, in bytes: of more, the end. The slowest input takes a few
// hundred milliseconds.
const maxRead = 256 << 10

// Render returns the text that a terminal of that size shows after p, with the scrolled lines
// above. A line that was drawn over, or erased, appears once, in its last form. The terminal is a
// plain one that begins empty; each character takes one cell. The text has at most 256 KiB, and no
// trailing blanks and blank lines.
func Render(p []byte, rows, cols int) string {
	g := grid{rows: min(max(rows, 1), maxCols), cols: min(max(cols, 1), maxCols)}
	g.bottom = g.rows - 1
	clean := String(string(p[max(0, len(p)-maxRead):]), Full)
	for len(clean) > 0 {
		if clean[0] == esc {
			clean = g.sequence(clean[1:])
			continue
		}
		r, size := utf8.DecodeRuneInString(clean)
		g.put(r)
		clean = clean[size:]
	}
	return g.text()
}

// grid is the cells of a terminal; a row that was never written is nil.
type grid struct {
	rows, cols  int
	top, bottom int // margins, both within
	cells       [][]rune
	row, col    int
	savedRow    int
	savedCol    int
	main        [][]rune // the first screen, while the second is shown
	gone        []string // scrolled away
	goneBytes   int
}

// maxCols bounds the size of a terminal, either way.
const maxCols = 1000

var blanks = []rune(strings.Repeat(" ", maxCols))

// line is a row, as long as col at least.
func (g *grid) line(row, col int) []rune {
	for len(g.cells) <= row {
		g.cells = append(g.cells, nil)
	}
	if missing := col - len(g.cells[row]); missing > 0 {
		g.cells[row] = append(g.cells[row], blanks[:missing]...)
	}
	return g.cells[row]
}

func (g *grid) put(r rune) {
	switch r {
	case '\n', '\v', '\f':
		g.feed()
	case '\r':
		g.col = 0
	case '\b':
		g.col = max(0, min(g.col, g.cols)-1)
	case '\t':
		g.col = min(g.cols-1, (g.col/8+1)*8)
	case 0x0e, 0x0f: // character sets
	default:
		if unicode.Is(unicode.Mn, r) || r == '\u200c' || r == '\u200d' {
			return // it belongs to the cell before
		}
		if g.col >= g.cols {
			g.col = 0
			g.feed()
		}
		line := g.line(g.row, g.col+1)
		line[g.col] = r
		g.col++
	}
}

// feed goes one line down, and scrolls at the bottom margin.
func (g *grid) feed() {
	if g.row == g.bottom {
		g.scroll(1)
	} else {
		g.row = min(g.row+1, g.rows-1)
	}
}

// scroll moves the lines between the margins up by n. It keeps the lines that leave the first row
// of the first screen.
func (g *grid) scroll(n int) {
	for i := range min(n, g.bottom-g.top+1) {
		if g.top == 0 && g.main == nil {
			g.keep(string(g.line(i, 0)))
		}
	}
	g.up(g.top, n)
}

// up moves the lines from top to the bottom margin up by n, down moves them down.
func (g *grid) up(top, n int) {
	g.line(g.bottom, 0)
	region := g.cells[top : g.bottom+1]
	n = min(n, len(region))
	copy(region, region[n:])
	clear(region[len(region)-n:])
}

func (g *grid) down(top, n int) {
	g.line(g.bottom, 0)
	region := g.cells[top : g.bottom+1]
	n = min(n, len(region))
	copy(region[n:], region)
	clear(region[:n])
}

func (g *grid) keep(line string) {
	line = strings.TrimRight(line, " ")
	g.gone, g.goneBytes = append(g.gone, line), g.goneBytes+len(line)+1
	for g.goneBytes > maxRendered {
		g.goneBytes -= len(g.gone[0]) + 1
		g.gone = g.gone[1:]
	}
}

// text is everything, its end where it is too long.
func (g *grid) text() string {
	if g.main != nil && !slices.ContainsFunc(g.cells, func(l []rune) bool { return strings.TrimSpace(string(l)) != "" }) {
		g.cells = g.main
	}
	for _, l := range g.cells {
		g.keep(string(l))
	}
	return strings.TrimRight(strings.Join(g.gone, "\n"), "\n")
}

// sequence reads one that String let through, after its ESC, and returns what follows it.
func (g *grid) sequence(s string) (rest string) {
	if s == "" {
		return ""
	}
	switch s[0] {
	case '[':
		end := 1 + strings.IndexFunc(s[1:], func(r rune) bool { return r >= '@' && r <= '~' })
		if end == 0 {
			return ""
		}
		g.control(s[1:end], s[end])
		return s[end+1:]
	case '(', ')':
		return s[min(2, len(s)):]
	case '7':
		g.savedRow, g.savedCol = g.row, g.col
	case '8':
		g.row, g.col = g.savedRow, g.savedCol
	case 'D':
		g.feed()
	case 'E':
		g.col = 0
		g.feed()
	case 'M':
		if g.row == g.top {
			g.down(g.top, 1)
		} else {
			g.row = max(0, g.row-1)
		}
	}
	return s[1:]
}

// control does what one control sequence says.
func (g *grid) control(params string, final byte) {
	n := max(1, number(params, 0, 1))
	switch final {
	case 'A', 'F':
		g.move(g.row-n, g.col)
	case 'B', 'E', 'e':
		g.move(g.row+n, g.col)
	case 'C', 'a':
		g.move(g.row, g.col+n)
	case 'D':
		g.move(g.row, g.col-n)
	case 'G', '`':
		g.move(g.row, n-1)
	case 'd':
		g.move(n-1, g.col)
	case 'H', 'f':
		g.move(n-1, max(1, number(params, 1, 1))-1)
	case 's':
		g.savedRow, g.savedCol = g.row, g.col
	case 'u':
		g.row, g.col = g.savedRow, g.savedCol
	case 'r':
		top, bottom := n-1, number(params, 1, g.rows)-1
		if g.top, g.bottom = 0, g.rows-1; top < bottom && bottom < g.rows {
			g.top, g.bottom = top, bottom
		}
		g.move(0, 0)
	case 'h', 'l':
		if strings.Contains(params, "1049") {
			g.second(final == 'h')
		}
	default:
		g.change(params, final, n)
	}
	if final == 'E' || final == 'F' {
		g.col = 0
	}
}

func (g *grid) move(row, col int) {
	g.row, g.col = min(max(row, 0), g.rows-1), min(max(col, 0), g.cols-1)
}
