package termsafe

import (
	"bytes"
	"slices"
)

const esc = 0x1b

// Reset undoes the effects of [Full] on a terminal: keys, modes, margins, the second screen,
// character sets, colours and the cursor. It ends on a line of its own.
const Reset = "\x18\x1b[?2004l\x1b[?1l\x1b>\x1b[4l\x1b[?6l\x1b[?7h\x1b[?12l\x1b[0 q" +
	"\x1b7\x1b[r\x1b8\x1b[?1049l\x1b(B\x1b)B\x0f\x1b[m\x1b[?25h\r\n"

// finals are the control sequences (CSI) of [Full] without prefix, by their final byte, and how
// many parameters they may have; with more some are something else. The tables leave out, among
// others: c, n and x (questions, which the terminal answers as if typed), t (the window and its
// title), p (soft reset, answers), i (printer), y (tests), and what has a prefix or an intermediate
// byte, except for the modes and the shape of the cursor.
var finals = map[byte]int{
	'A': 1, 'B': 1, 'C': 1, 'D': 1, 'E': 1, 'F': 1, 'G': 1, 'H': 2, 'I': 1, 'Z': 1, // cursor
	'a': 1, 'd': 1, 'e': 1, 'f': 2, '`': 1, 's': 0, 'u': 0,
	'J': 1, 'K': 1, 'X': 1, '@': 1, 'P': 1, 'L': 1, 'M': 1, 'S': 1, 'T': 1,
	'b': 1,         // erase, insert, scroll, repeat
	'g': 1, 'r': 2, // tab stops, margins
}

// modes are those of DEC (CSI ? n h and l): cursor keys, origin, wrap, blinking and visible
// cursor, the second screen, bracketed paste. No mouse, no focus: these make the terminal
// type, also after the program that reads it has ended.
var modes = []string{"1", "6", "7", "12", "25", "1049", "2004"}

// longestNumber bounds a parameter in digits: a terminal that repeats a character or scrolls
// a thousand million times does nothing else meanwhile.
const longestNumber = 4

// listed reports a control sequence that level lets through.
func (s *sequence) listed(level Level, final byte) bool {
	numbers := bytes.FieldsFunc(s.params, func(r rune) bool { return r == ';' || r == ':' })
	if slices.ContainsFunc(numbers, func(n []byte) bool { return len(n) > longestNumber }) {
		return false
	}
	switch {
	case final == 'm' && s.prefix == 0 && s.intermediate == 0:
		return level >= Styled
	case level != Full || bytes.ContainsRune(s.params, ':'):
		return false
	case s.prefix == '?':
		return s.intermediate == 0 && (final == 'h' || final == 'l') && s.onlyModes()
	case s.prefix != 0:
		return false
	case s.intermediate == ' ':
		return final == 'q' && len(s.params) <= 1 && s.count() <= 1
	case s.intermediate != 0:
		return false
	case final == 'h' || final == 'l':
		return string(s.params) == "4" // insert
	case final == 'J':
		return string(s.params) != "3" &&
			len(s.params) <= 1 // 3 is what was scrolled away, which is the operator's
	}
	max, known := finals[final]
	return known && s.count() <= max
}

func (s *sequence) count() int {
	if len(s.params) == 0 {
		return 0
	}
	return bytes.Count(s.params, []byte(";")) + 1
}

func (s *sequence) onlyModes() bool {
	for n := range bytes.SplitSeq(s.params, []byte(";")) {
		if !slices.Contains(modes, string(n)) {
			return false
		}
	}
	return true
}

// escapeListed reports an escape sequence of [Full]: save and restore the cursor, line feeds,
// tab stop, keypad, and the two sets of characters that lines are drawn with. Not c, which
// resets the terminal, and not Z, which it answers.
func escapeListed(intermediate, final byte) bool {
	switch intermediate {
	case 0:
		return bytes.IndexByte([]byte("78DEHM=>"), final) >= 0
	case '(', ')':
		return final == 'B' || final == '0'
	}
	return false
}
