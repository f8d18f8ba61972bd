package tmux

import (
	"bytes"
	"slices"
	"strconv"
)

// Mark is one of a shell's marks in its output (OSC 133, "semantic prompt"): 'A' before a
// prompt, 'B' after it, 'C' before the output of a command, 'D' after it.
type Mark struct {
	Kind byte
	// Exit is the exit code beside 'D'; HasExit is false without a code from 0 to 255.
	Exit    int
	HasExit bool
	// More is an 'A' before the prompt for the rest of a line (k=s).
	More bool
}

// Marks finds marks in a stream that comes in pieces. Every program that prints can forge them.
// It holds at most longestMark bytes. The zero value is ready.
type Marks struct {
	held []byte // what may be the beginning of one
}

var markIntro = []byte("\x1b]133;")

// longestMark bounds a mark in bytes, with its introduction and without its end; the text that
// shells may add after the code is not used.
const longestMark = 128

// Read returns the marks that end in p. Both ways to end a mark begin with BEL or ESC; the \ after
// ESC is text to it.
func (m *Marks) Read(p []byte) (marks []Mark) {
	for _, b := range p {
		n := len(m.held)
		intro := n < len(markIntro)
		if intro && b == markIntro[n] || !intro && b >= ' ' && n < longestMark {
			m.held = append(m.held, b)
			continue
		}
		if !intro && (b == '\a' || b == markIntro[0]) {
			marks = appendMark(marks, m.held[len(markIntro):])
		}
		m.held = m.held[:0]
		if b == markIntro[0] {
			m.held = append(m.held, b)
		}
	}
	return marks
}

// appendMark parses the text between the introduction and the end: "D;0;aid=1".
func appendMark(marks []Mark, text []byte) []Mark {
	fields := bytes.Split(text, []byte(";"))
	if len(fields[0]) != 1 || fields[0][0] < 'A' || fields[0][0] > 'D' {
		return marks
	}
	mark := Mark{Kind: fields[0][0]}
	if mark.Kind == 'D' && len(fields) > 1 {
		code, err := strconv.ParseUint(string(fields[1]), 10, 8)
		mark.Exit, mark.HasExit = int(code), err == nil
	}
	mark.More = mark.Kind == 'A' && slices.ContainsFunc(fields[1:], func(f []byte) bool {
		return string(f) == "k=s"
	})
	return append(marks, mark)
}
