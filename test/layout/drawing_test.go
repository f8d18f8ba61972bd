package layout

import (
	"encoding/xml"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var update = flag.Bool("update", false, "draw "+drawing+" anew")

// drawing is the picture of the folders. Each has its lines of code in it, in hundreds: it is out
// of date when a folder or a crossing is, or when a figure is far from the drawn one.
const drawing = "tree.svg"

// panels are the sides from left to right: the column, how many columns, the title, and colours as
// in processes.svg.
var panels = []struct {
	side         string
	x, columns   int
	title        string
	fill, stroke string
}{
	{"front", 0, 1, "front: no privilege", "#e7f1fd", "#1c6fc4"},
	{"egress", 0, 1, "egress: no privilege", "#e7f1fd", "#1c6fc4"},
	{"enforce", 0, 1, "enforce: root", "#fdeaea", "#c92a2a"},
	{"root", 1, 2, "root", "#fdeaea", "#c92a2a"},
	{"chat", 3, 1, "the chat's user", "#e9f7ec", "#2b8a3e"},
	{"test", 3, 1, "tests", "#f1f3f5", "#868e96"},
	{"pure", 4, 1, "pure: of every side", "#f1f3f5", "#868e96"},
}

const (
	left        = 40
	columnWidth = 230
	rowHeight   = 17
)

// box is where an arrow meets a folder or a side: the left edge, the middle and the width.
type box struct{ x, y, width int }

// TestDrawing: the drawing shows each folder, its side and the crossings. With -update it is drawn.
func TestDrawing(t *testing.T) {
	lines := codeLines(t)
	if *update {
		must.Do(t, os.WriteFile(drawing, []byte(drawTree(lines)), 0o644))
	}
	have := page(t, drawing)
	for _, m := range regexp.MustCompile(`<!-- (\S+) (\d+) -->`).FindAllStringSubmatch(have, -1) {
		drawn, err := strconv.Atoi(m[2])
		if n, ok := lines[m[1]]; err == nil && ok && max(n-drawn, drawn-n) <= max(300, drawn/4) {
			lines[m[1]] = drawn
		}
	}
	expect.True(t, have == drawTree(lines),
		"%s is out of date: go test ./test/layout -run TestDrawing -update", drawing)
	expect.Is(t, xml.Unmarshal([]byte(have), new(struct{})), nil, "%s is no XML", drawing)
}

// codeLines are the lines of code of each folder, in hundreds and at least one.
func codeLines(t *testing.T) map[string]int {
	t.Helper()
	lines := map[string]int{}
	for _, path := range goFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			lines[filepath.Dir(path)] += measure(t, path).code
		}
	}
	for dir, n := range lines {
		lines[dir] = max(100, (n+50)/100*100)
	}
	return lines
}

// drawTree is the drawing of folders with these lines.
func drawTree(lines map[string]int) string {
	var body strings.Builder
	bottom, at := map[int]int{}, map[string]box{} // of a column; of a folder or a side
	for _, p := range panels {
		dirs := slices.DeleteFunc(slices.Sorted(maps.Keys(lines)), func(dir string) bool { return sideOfFolder(dir) != p.side })
		rows := (len(dirs) + p.columns - 1) / p.columns
		x, y, width := left+p.x*columnWidth, 56+bottom[p.x], p.columns*columnWidth-30
		fmt.Fprintf(&body, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" stroke=\"%s\"/>\n",
			x, y, width, (rows+1)*rowHeight+14, p.fill, p.stroke)
		fmt.Fprintf(&body, "<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n", x+10, y+19, p.title)
		at[p.side] = box{x, y + 14, width}
		for i, dir := range dirs {
			at[dir] = box{x + i/rows*columnWidth, y + 32 + i%rows*rowHeight, columnWidth - 30}
			drawFolder(&body, dir, lines[dir], at[dir], p.stroke)
		}
		bottom[p.x] += (rows+1)*rowHeight + 30
	}
	height := 56 + slices.Max(slices.Collect(maps.Values(bottom)))
	for _, crossing := range slices.Sorted(maps.Keys(crossings)) {
		from, to, _ := strings.Cut(crossing, " ")
		drawCrossing(&body, crossing, at[from], at[to])
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" role="img"
     aria-labelledby="title" font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">
<title id="title">The folders of chatd by side, with hundreds of lines of code, and what crosses</title>
<style>.name { font-size: 14px; font-weight: bold } .text { font-size: 11px; fill: #333 }
.cross { fill: none; stroke: #7048e8; stroke-width: 1.3; marker-end: url(#head) }</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
        orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#7048e8"/></marker></defs>
<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>
<text class="text" x="%[4]d" y="24">A bar is the lines of code. A folder imports its own side, and pure ones; an arrow is an import of another side.</text>
%[3]s</svg>
`, left+5*columnWidth, height, body.String(), left)
}

// drawFolder draws a folder's row, with its lines in a comment for TestDrawing.
func drawFolder(body *strings.Builder, dir string, lines int, at box, stroke string) {
	fmt.Fprintf(body, "<!-- %s %d --><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"11\" fill=\"%s\" opacity=\"0.3\"/>",
		dir, lines, at.x+10, at.y-5, lines/40, stroke)
	fmt.Fprintf(body, "<text class=\"text\" x=\"%d\" y=\"%d\">%s</text>", at.x+14, at.y+4, dir)
	fmt.Fprintf(body, "<text class=\"text\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", at.x+at.width-10, at.y+4, lines)
}

// drawCrossing draws an arrow between the near edges of two boxes, or the left ones in a column.
func drawCrossing(body *strings.Builder, crossing string, from, to box) {
	x1, x2, bend, back := from.x, to.x+to.width, -40, 40
	switch {
	case to.x > from.x:
		x1, x2, bend, back = from.x+from.width, to.x, 40, -40
	case to.x == from.x:
		x2, back = to.x, -40
	}
	fmt.Fprintf(body, "<path class=\"cross\" d=\"M%d %d C %d %d, %d %d, %d %d\"><title>%s</title></path>\n",
		x1, from.y, x1+bend, from.y, x2+back, to.y, x2, to.y, crossing)
}
