package termsafe

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi/parser"
)

// Level is which sequences come through beside text.
type Level int

const (
	// Plain is text, line ends and tabs.
	Plain Level = iota
	// Styled is Plain, colours and the like (SGR).
	Styled
	// Full is for a full-screen program: Styled, and the sequences of sequences.go, which move
	// the cursor, clear, scroll and switch modes that [Reset] switches back.
	Full
)

// maxParams bounds the parameters of one sequence in bytes; longer ones are dropped.
const maxParams = 128

// Writer makes a chat's output safe and writes it on. It holds at most the beginning of a
// character or of a sequence. It is not safe for concurrent use.
type Writer struct {
	w     io.Writer
	level Level
	// formats keeps characters of format (Unicode, Cf), which a terminal may reorder lines by.
	formats bool

	state parser.State
	char  [utf8.UTFMax]byte // a character whose end has not come
	have  int
	seq   sequence
	out   []byte
}

// sequence is what was read of one.
type sequence struct {
	prefix       byte // one of < = > ?, 0 if there is none
	params       []byte
	intermediate byte
	bad          bool // too long, or of a form that is not on the list
}

// NewWriter returns a Writer to w for a level.
func NewWriter(w io.Writer, level Level) *Writer { return &Writer{w: w, level: level} }

// Write reads p. The error is that of the writer behind it.
func (d *Writer) Write(p []byte) (int, error) {
	d.out = d.out[:0]
	for _, b := range p {
		d.read(b)
	}
	if len(d.out) == 0 {
		return len(p), nil
	}
	if _, err := d.w.Write(d.out); err != nil {
		return 0, fmt.Errorf("cannot write the output: %w", err)
	}
	return len(p), nil
}

// String is text as level lets it through.
func String(text string, level Level) string { return (&Writer{level: level}).text(text) }

func (d *Writer) text(text string) string {
	for i := range len(text) {
		d.read(text[i])
	}
	d.cut()
	return string(d.out)
}

// read takes one byte. Text is UTF-8: the one-byte controls from 0x80 on are not, and are a
// broken character. The parser's table sees no byte from 0x80 on: it ends a string at 0x9c,
// also inside a character.
func (d *Writer) read(b byte) {
	if d.have > 0 && d.goOn(b) {
		return
	}
	if b >= utf8.RuneSelf && d.state == parser.GroundState {
		d.char[0], d.have = b, 1
		d.whole()
		return
	}
	if b >= utf8.RuneSelf {
		d.seq.bad = true // nothing ends or begins
		return
	}
	state, action := parser.Table.Transition(d.state, b)
	if d.state != state && state == parser.EscapeState || action == parser.ClearAction {
		d.seq = sequence{params: d.seq.params[:0]}
	}
	d.act(action, d.state, b)
	d.state = state
}

// goOn adds b to the character that has begun, if it belongs there.
func (d *Writer) goOn(b byte) bool {
	if utf8.RuneStart(b) {
		d.cut()
		return false
	}
	d.char[d.have] = b
	d.have++
	d.whole()
	return true
}

// whole writes the character if all of it is there, or if it never will be.
func (d *Writer) whole() {
	if utf8.FullRune(d.char[:d.have]) {
		r, size := utf8.DecodeRune(d.char[:d.have])
		rest := d.have - size
		d.have = 0
		d.print(r)
		for range rest {
			d.print(utf8.RuneError)
		}
	}
}

// cut writes a character whose end did not come.
func (d *Writer) cut() {
	if d.have > 0 {
		d.have = 0
		d.print(utf8.RuneError)
	}
}

func (d *Writer) act(action parser.Action, from parser.State, b byte) {
	switch action {
	case parser.PrintAction:
		d.out = append(d.out, b)
	case parser.ExecuteAction:
		d.control(b)
	case parser.PrefixAction:
		d.seq.prefix = b
	case parser.CollectAction:
		d.seq.bad = d.seq.bad || d.seq.intermediate != 0
		d.seq.intermediate = b
	case parser.ParamAction:
		if d.seq.bad = d.seq.bad || len(d.seq.params) == maxParams; !d.seq.bad {
			d.seq.params = append(d.seq.params, b)
		}
	case parser.DispatchAction:
		d.dispatch(from, b)
	}
}

// dispatch writes a sequence that is on the list. Strings (OSC, DCS, SOS, PM, APC) never are.
func (d *Writer) dispatch(from parser.State, final byte) {
	switch from {
	case parser.EscapeState, parser.EscapeIntermediateState:
		if d.level == Full && !d.seq.bad && escapeListed(d.seq.intermediate, final) {
			d.out = append(d.out, esc)
			d.out = appendByte(d.out, d.seq.intermediate)
			d.out = append(d.out, final)
		}
	case parser.CsiEntryState, parser.CsiParamState, parser.CsiIntermediateState:
		if !d.seq.bad && d.seq.listed(d.level, final) {
			d.out = append(d.out, esc, '[')
			d.out = appendByte(d.out, d.seq.prefix)
			d.out = append(d.out, d.seq.params...)
			d.out = appendByte(d.out, d.seq.intermediate)
			d.out = append(d.out, final)
		}
	}
}

func appendByte(out []byte, b byte) []byte {
	if b != 0 {
		out = append(out, b)
	}
	return out
}

// print writes one character. A control from U+0080 on is one for some terminals
// (C1), and those that turn the direction of writing reach beyond their text.
func (d *Writer) print(r rune) {
	joins := r == '\u200c' || r == '\u200d' || d.formats && unicode.Is(unicode.Cf, r)
	if joins || unicode.IsPrint(r) || unicode.In(r, unicode.Zs, unicode.Co) {
		d.out = utf8.AppendRune(d.out, r)
	}
}

// control writes a control byte that moves the cursor, or chooses the characters that
// lines are drawn with.
func (d *Writer) control(b byte) {
	switch b {
	case '\n', '\t':
		d.out = append(d.out, b)
	case '\b', '\v', '\f', '\r', 0x0e, 0x0f:
		if d.level == Full {
			d.out = append(d.out, b)
		}
	}
}
