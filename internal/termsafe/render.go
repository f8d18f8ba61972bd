package termsafe

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// maxRendered bounds what [Render] gives back, in bytes: of more, the end.
const maxRendered = 256 << 10

// maxRead bounds what Render reads, in bytes: of more, the end. The slowest input takes a few
// hundred milliseconds.
const maxRead = 256 << 10

// Render returns the text that a terminal of that size shows after p, with the scrolled lines
// above. A line that was drawn over, or erased, appears once, in its last form; one that went on in
// the next row is one line. The terminal is a plain one that begins empty. A wide character takes
// two cells (Unicode Standard Annex 11); marks and joiners are in the cell of the character before.
// The text has at most 256 KiB, and no trailing blanks and blank lines. It keeps characters that
// reorder lines, which [String] leaves out: for a terminal it goes through that.
func Render(p []byte, rows, cols int) string {
	g := grid{rows: min(max(rows, 1), maxCols), cols: min(max(cols, 1), maxCols)}
	g.bottom = g.rows - 1
	clean := (&Writer{level: Full, formats: true}).text(string(p[max(0, len(p)-maxRead):]))
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

// row is the cells of one, as far as it was written. A cell is what is in it: a character with its
// marks, a blank, or nothing for the right half of a wide character.
type row struct {
	cells []string
	wraps bool // the line goes on in the next row
}

// grid is the cells of a terminal.
type grid struct {
	rows, cols  int
	top, bottom int // margins, both within
	cells       []row
	row, col    int
	savedRow    int
	savedCol    int
	main        []row    // the first screen, while the second is shown
	gone        []string // scrolled away
	wrapped     bool     // the last of gone goes on
	goneBytes   int
}

// maxCols bounds the size of a terminal, either way.
const maxCols = 1000

// maxMarks bounds the marks of one character, in bytes.
const maxMarks = 256

var blanks = slices.Repeat([]string{" "}, maxCols)

// line is the cells of a row, as many as col at least.
func (g *grid) line(at, col int) []string {
	for len(g.cells) <= at {
		g.cells = append(g.cells, row{})
	}
	if missing := col - len(g.cells[at].cells); missing > 0 {
		g.cells[at].cells = append(g.cells[at].cells, blanks[:missing]...)
	}
	return g.cells[at].cells
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
		g.write(r)
	}
}

// widths are those of a UTF-8 locale, whatever this process's is.
var widths = &runewidth.Condition{StrictEmojiNeutral: true}

// write writes a character at the cursor, or adds it to the one before.
func (g *grid) write(r rune) {
	cells := 1
	if widths.RuneWidth(r) == 2 {
		cells = 2
	}
	if isMark(r) && g.mark(r) {
		return
	}
	if g.col+cells > g.cols && g.cols >= cells {
		g.line(g.row, 0)
		g.cells[g.row].wraps = true
		g.col = 0
		g.feed()
	}
	line := g.line(g.row, g.col+cells)
	g.part(line, g.col)
	g.part(line, g.col+cells)
	line[g.col] = string(r)
	if cells == 2 {
		line[g.col+1] = ""
	}
	g.col += cells
}

// isMark reports a character without a cell of its own: a mark, a joiner, a mark of direction.
func isMark(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) }

// mark adds a mark to the character before the cursor, if there is one.
func (g *grid) mark(r rune) bool {
	line := g.line(g.row, 0)
	at := min(g.col, len(line)) - 1
	if at > 0 && line[at] == "" {
		at--
	}
	if at < 0 {
		return false
	}
	if len(line[at]) < maxMarks {
		line[at] += string(r)
	}
	return true
}

// part blanks the halves of a wide character whose right half is at a cell.
func (g *grid) part(line []string, at int) {
	if at > 0 && at < len(line) && line[at] == "" {
		line[at-1], line[at] = " ", " "
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
			g.line(i, 0)
			g.keep(g.cells[i])
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

// keep appends a row to the lines, or to the line that goes on in it.
func (g *grid) keep(r row) {
	line := strings.Join(r.cells, "")
	if !r.wraps {
		line = strings.TrimRight(line, " ")
	}
	if last := len(g.gone) - 1; g.wrapped && last >= 0 {
		g.gone[last] += line
		g.goneBytes += len(line)
	} else {
		g.gone, g.goneBytes = append(g.gone, line), g.goneBytes+len(line)+1
	}
	g.wrapped = r.wraps
	for g.goneBytes > maxRendered && len(g.gone) > 1 {
		g.goneBytes -= len(g.gone[0]) + 1
		g.gone = g.gone[1:]
	}
}

// text is everything, its end where it is too long.
func (g *grid) text() string {
	blank := func(r row) bool { return strings.TrimSpace(strings.Join(r.cells, "")) == "" }
	if g.main != nil && !slices.ContainsFunc(g.cells, func(r row) bool { return !blank(r) }) {
		g.cells = g.main
	}
	for _, r := range g.cells {
		g.keep(r)
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
