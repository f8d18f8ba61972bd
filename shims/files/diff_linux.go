package files

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/internal/filewire"
)

// contextLines is the number of unchanged lines around a change, as in diff -u.
const contextLines = 3

// maxAround bounds the bytes read on either side of an edit.
const maxAround = 64 << 10

// replacement is an edit: new for old, at off, in a file of size bytes.
type replacement struct {
	src       io.ReaderAt
	size, off int64
	old, new  []byte
}

// diff is the edit as a unified diff of one hunk, or why there is none. It reads only the lines
// around the edit, and counts those before it.
func (r replacement) diff(name string) (diff, omitted string, err error) {
	before, err := r.before()
	if err != nil {
		return "", "", err
	}
	after, err := r.after()
	if err != nil {
		return "", "", err
	}
	if before == nil || after == nil {
		return "", "a line is too long", nil
	}
	was, is := join(before, r.old, after), join(before, r.new, after)
	if !utf8.Valid(was) || !utf8.Valid(is) {
		return "", "binary", nil
	}
	line, err := countLines(r.src, r.off-int64(len(before)))
	if err != nil {
		return "", "", err
	}
	diff = hunk(name, line, splitLines(was), splitLines(is))
	if len(diff) > filewire.MaxDiff {
		return "", "it is too long", nil
	}
	return diff, "", nil
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// before is the beginning of the edit's first line and up to four lines before it; nil when no line
// begins near enough.
func (r replacement) before() ([]byte, error) {
	buf := make([]byte, min(r.off, maxAround))
	if _, err := r.src.ReadAt(buf, r.off-int64(len(buf))); err != nil && err != io.EOF {
		return nil, err
	}
	lines := splitLines(buf)
	if far := len(lines) - contextLines - 2; far > 0 {
		lines = lines[far:]
	} else if int64(len(buf)) < r.off {
		if lines = lines[1:]; len(lines) == 0 && buf[len(buf)-1] != '\n' {
			return nil, nil
		}
	}
	return []byte(strings.Join(lines, "")), nil
}

// after is the rest of the edit's last line and up to four lines after it; nil when none ends near
// enough.
func (r replacement) after() ([]byte, error) {
	from := r.off + int64(len(r.old))
	buf := make([]byte, min(r.size-from, maxAround))
	if _, err := r.src.ReadAt(buf, from); err != nil && err != io.EOF {
		return nil, err
	}
	if at, left := afterLines(buf, contextLines+2); left == 0 {
		buf = buf[:at]
	} else if from+int64(len(buf)) < r.size {
		if buf = buf[:bytes.LastIndexByte(buf, '\n')+1]; len(buf) == 0 {
			return nil, nil
		}
	}
	return buf, nil
}

// splitLines keeps the line ends, so that a last line without one differs.
func splitLines(b []byte) []string {
	lines := strings.SplitAfter(string(b), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// hunk formats two texts, which begin after line before, as one hunk: their common lines on either
// side are context.
func hunk(name string, before int64, was, is []string) string {
	same := 0
	for same < min(len(was), len(is)) && was[same] == is[same] {
		same++
	}
	if same == len(was) && same == len(is) {
		return ""
	}
	tail := 0
	for tail < min(len(was), len(is))-same && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	from := max(0, same-contextLines)
	drop := max(0, tail-contextLines)
	was, is = was[from:len(was)-drop], is[from:len(is)-drop]
	same, tail = same-from, tail-drop
	before += int64(from)

	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n@@ -%s +%s @@\n", inDiff("a/", name), inDiff("b/", name),
		span(before, len(was)), span(before, len(is)))
	put(&b, " ", was[:same])
	put(&b, "-", was[same:len(was)-tail])
	put(&b, "+", is[same:len(is)-tail])
	put(&b, " ", was[len(was)-tail:])
	return b.String()
}

// span is a range of lines; an empty one is named after the line before it.
func span(before int64, n int) string {
	if n > 0 {
		before++
	}
	return strconv.FormatInt(before, 10) + "," + strconv.Itoa(n)
}

func put(b *strings.Builder, mark string, lines []string) {
	for _, l := range lines {
		b.WriteString(mark + l)
		if !strings.HasSuffix(l, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// inDiff is a name as git writes it: quoted when it would break the line.
func inDiff(side, name string) string {
	name = side + strings.TrimPrefix(name, "/")
	if q := strconv.QuoteToASCII(name); q != `"`+name+`"` {
		return q
	}
	return name
}
