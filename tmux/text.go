package tmux

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text removes the escape sequences and control characters from a stream that comes in pieces, as
// a VT500 reads them (https://vt100.net/emu/dec_ansi_parser). It keeps text, line ends and tabs,
// and replaces invalid UTF-8 by U+FFFD. No byte from 0x80 on is a control. It holds at most the
// beginning of one character. The zero value is ready.
//
// Its output is not safe for a terminal: package termsafe is for that.
type Text struct {
	state state
	held  []byte // a character whose end has not come
}

// state is what the next byte belongs to.
type state byte

const (
	ground       state = iota
	escape             // after ESC
	intermediate       // after ESC and a byte from 0x20 to 0x2F
	csi                // a control sequence, up to its final byte
	osc                // a string that BEL ends too
	dcs                // a string: DCS, SOS, PM, APC
)

// Append appends the text of the next piece to to.
func (t *Text) Append(to, piece []byte) []byte {
	if len(t.held) > 0 {
		piece, t.held = append(t.held, piece...), nil
	}
	for len(piece) > 0 {
		size := 1
		switch r := rune(piece[0]); {
		case r < utf8.RuneSelf:
			if t.prints(piece[0]) {
				to = append(to, piece[0])
			}
		case t.state != ground:
		case !utf8.FullRune(piece):
			t.held = append(t.held, piece...)
			return to
		default:
			if r, size = utf8.DecodeRune(piece); shown(r) {
				to = utf8.AppendRune(to, r)
			}
		}
		piece = piece[size:]
	}
	return to
}

// shown reports a character that has a place on the screen, or joins two that have.
func shown(r rune) bool {
	joins := r == '\u200c' || r == '\u200d'
	return joins || unicode.IsPrint(r) || unicode.In(r, unicode.Zs, unicode.Co)
}

// prints takes an ASCII byte, and reports one that is text.
func (t *Text) prints(b byte) bool {
	switch {
	case b == 0x1b:
		t.state = escape
	case b == 0x18, b == 0x1a, b == '\a' && t.state == osc: // CAN, SUB
		t.state = ground
	case t.state == osc, t.state == dcs:
	case b < ' ': // inside a sequence too
		return b == '\n' || b == '\t'
	case b == 0x7f:
	case t.state == ground:
		return true
	case t.state == csi:
		if b >= '@' {
			t.state = ground
		}
	case b < '0':
		t.state = intermediate
	case t.state == escape:
		t.state = begun(b)
	default:
		t.state = ground
	}
	return false
}

// begun is what ESC and b begin.
func begun(b byte) state {
	switch b {
	case '[':
		return csi
	case ']':
		return osc
	case 'P', 'X', '^', '_':
		return dcs
	}
	return ground
}

// controlSequence is CSI with its parameters (ECMA-48, section 5.4), as in the marks of a bracketed
// paste and in colours that were pasted from a log.
var controlSequence = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]`)

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Typeable is a text as people write it: line ends of every system are line feeds; terminal
// sequences, and control characters other than tab and line feed, are left out. So no text is a
// key, and none ends the frame of a bracketed paste around it: what a person writes would be
// commands of the program that reads.
func Typeable(text string) string {
	text = controlSequence.ReplaceAllString(lineEnds.Replace(text), "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return -1
		}
		return r
	}, text)
}
