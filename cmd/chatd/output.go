package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// escape makes text from a chat or a caller safe for a terminal: what is not
// printable (control bytes, C1 and bidirectional controls, broken UTF-8) becomes
// its Go escape; newline and tab stay.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// cell is escape for one cell of a table: newline and tab go too.
func cell(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(escape(s))
}

// isTerminal takes every character device for a terminal, which errs towards
// escaping.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}

// writeChatText writes what a chat printed: as it is to a file or a pipe, escaped
// to a terminal.
func writeChatText(w io.Writer, s string) error {
	if isTerminal(w) {
		s = escape(s)
	}
	if _, err := io.WriteString(w, s); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

// writeJSON writes v as one JSON value in which no control byte is left, also not
// the ones that encoding/json leaves (DEL, C1, bidirectional).
func writeJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	return writeJSONText(w, b, err)
}

// writeJSONLine is writeJSON in one line.
func writeJSONLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	return writeJSONText(w, b, err)
}

func writeJSONText(w io.Writer, b []byte, err error) error {
	if err != nil {
		return fmt.Errorf("cannot write JSON: %w", err)
	}
	if _, err := w.Write(printable(b)); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

// printable is JSON, and a newline, with everything escaped that is not printable.
func printable(b []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(b) {
		if r == '\n' || r < 0x7f || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		for _, u := range utf16Units(r) {
			fmt.Fprintf(&out, `\u%04x`, u)
		}
	}
	out.WriteByte('\n')
	return out.Bytes()
}

func utf16Units(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}

// answer writes v as JSON with --json, else what people calls for.
func answer(c *cli.Context, v any, people func(io.Writer) error) error {
	if c.Bool("json") {
		return writeJSON(c.App.Writer, v)
	}
	return people(c.App.Writer)
}

// table writes rows in columns; the first row is the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = cell(row[i])
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

// progress shows on a terminal that something is under way, until the returned
// func is called. NO_COLOR or TERM=dumb means a plain line without movement.
func progress(c *cli.Context, what string) (done func()) {
	w := c.App.ErrWriter
	if !isTerminal(w) {
		return func() {}
	}
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		fmt.Fprintf(w, "%s …\n", what)
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go spin(w, what, stop, stopped)
	return func() { close(stop); <-stopped }
}

func spin(w io.Writer, what string, stop, stopped chan struct{}) {
	defer close(stopped)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i, begin := 0, time.Now(); ; i++ {
		select {
		case <-stop:
			fmt.Fprint(w, "\r\x1b[K")
			return
		case <-tick.C:
			fmt.Fprintf(w, "\r%c %s %s", `|/-\`[i%4], what, time.Since(begin).Truncate(time.Second))
		}
	}
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
