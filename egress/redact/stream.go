package redact

import (
	"bytes"
	"slices"
)

// scrubber puts asterisks in the place of texts in a stream that comes in pieces. What it passes on
// has the same length. It keeps back an end in which a text may begin: visible characters, of which
// texts are made, one less than the longest has. Whether they are the beginning of one makes no
// difference: who can have a server send what he likes would try characters, see which are kept
// back, and so read a text.
type scrubber struct {
	texts  func() []string
	text   []byte // what is kept back, as it came
	out    []byte // the same with asterisks, and with what was inserted
	gaps   []gap
	passed []byte // what feed returned last
}

// gap is where bytes were inserted that are not of the text, such as the header of a frame.
type gap struct{ at, size int }

// insert adds bytes that are passed on in their place and are no part of the text.
func (s *scrubber) insert(b []byte) {
	s.out = append(s.out, b...)
	s.gaps = append(s.gaps, gap{len(s.text), len(b)})
}

// feed adds b to the text and returns what can be passed on; at the end of the text, everything. It
// is valid until the next call.
func (s *scrubber) feed(b []byte, end bool) []byte {
	s.text, s.out = append(s.text, b...), append(s.out, b...)
	longest := 1
	for _, t := range s.texts() {
		s.mask(t)
		longest = max(longest, len(t))
	}
	keep := 0
	if !end {
		keep = visibleEnd(s.text, longest-1)
	}
	cut, size := len(s.text)-keep, len(s.out)
	if keep > 0 {
		size = s.place(cut)
	}
	s.passed = append(s.passed[:0], s.out[:size]...)
	s.text = append(s.text[:0], s.text[cut:]...)
	s.out = append(s.out[:0], s.out[size:]...)
	s.gaps = slices.DeleteFunc(s.gaps, func(g gap) bool { return g.at <= cut })
	for i := range s.gaps {
		s.gaps[i].at -= cut
	}
	return s.passed
}

// mask overwrites each place of t, also where places overlap.
func (s *scrubber) mask(t string) {
	for from := 0; ; from++ {
		i := bytes.Index(s.text[from:], []byte(t))
		if i < 0 {
			return
		}
		from += i
		for k := range len(t) {
			s.out[s.place(from+k)] = '*'
		}
	}
}

// place is where the byte i of the text is in out.
func (s *scrubber) place(i int) int {
	at := i
	for _, g := range s.gaps {
		if g.at <= i {
			at += g.size
		}
	}
	return at
}

// visibleEnd is how many visible characters of ASCII end a text, at most most.
func visibleEnd(text []byte, most int) (n int) {
	for n < min(most, len(text)) {
		if c := text[len(text)-1-n]; c <= ' ' || c > '~' {
			break
		}
		n++
	}
	return n
}
