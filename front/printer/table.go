package printer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
)

// zoned is a local time with its zone: the log and --json are in UTC.
const zoned = time.DateTime + " MST"

// list is a table with a row for each of all.
func list[T any](head []string, all []T, row func(T) []string) string {
	rows := [][]string{head}
	for _, v := range all {
		rows = append(rows, row(v))
	}
	return table(rows)
}

// table is rows in columns; the first row is the head.
func table(rows [][]string) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = Cell(row[i])
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	_ = t.Flush() // a Builder takes all
	return b.String()
}

// lines is each as one line of a terminal, whatever is in it.
func lines(lines ...string) (text string) {
	for _, l := range lines {
		text += Cell(l) + "\n"
	}
	return text
}

// size writes bytes for people.
func size(n uint64) string {
	unit := 0
	f := float64(n)
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.1f%ciB", f, "KMGT"[unit-1])
}

// age writes a time span in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// cut shortens to width runes.
func cut(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}

func dash(s string) string { return cmp.Or(s, "-") }

// JSON writes v as one JSON value in which no control byte is left, also not
// the ones that encoding/json leaves (DEL, C1, bidirectional).
func JSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	return writeJSON(w, b, err)
}

// JSONLine is [JSON] in one line.
func JSONLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	return writeJSON(w, b, err)
}

func writeJSON(w io.Writer, b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("cannot write JSON: %w", err)
	}
	return Write(w, printable(b))
}

// printable is JSON, and a newline, with everything escaped that is not printable.
func printable(b []byte) string {
	var out bytes.Buffer
	for _, r := range string(b) {
		if r == '\n' || r < 0x7f || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, u)
		}
	}
	out.WriteByte('\n')
	return out.String()
}
