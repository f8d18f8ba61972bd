package egress

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
)

// scrubText puts asterisks in the place of each text of traces.
func scrubText(s string, traces []string) string {
	if !slices.ContainsFunc(traces, func(t string) bool { return strings.Contains(s, t) }) {
		return s
	}
	scrub := scrubber{traces: func() []string { return traces }}
	return string(scrub.feed([]byte(s), true))
}

// scrubHeader is scrubText for the values of headers. One whose name has a text, in any case, is
// left out.
func scrubHeader(h http.Header, traces []string) {
	for name, values := range h {
		if hasFold(name, traces) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = scrubText(v, traces)
		}
	}
}

// hasFold reports whether s has one of the texts, in any case.
func hasFold(s string, texts []string) bool {
	low := strings.ToLower(s)
	return slices.ContainsFunc(texts, func(t string) bool {
		return strings.Contains(low, strings.ToLower(t))
	})
}

// scrubber puts asterisks in the place of texts in a stream that comes in pieces. What it passes on
// has the same length. It keeps back an end in which a text may begin: visible characters, of which
// texts are made, one less than the longest has. Whether they are the beginning of one makes no
// difference: who can have a server send what he likes would try characters, see which are kept
// back, and so read a text.
type scrubber struct {
	traces func() []string
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
	for _, t := range s.traces() {
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

// feeder is a scrubber of a stream, or of the messages in it.
type feeder interface {
	next(b []byte, end bool) ([]byte, error)
}

func (s *scrubber) next(b []byte, end bool) ([]byte, error) { return s.feed(b, end), nil }

// scrubbed is a reader without the texts of its feeder.
type scrubbed struct {
	from io.Reader
	feed feeder
	out  []byte
	err  error
	end  func() // is called before the end is told; may be nil
}

// Read is that of [io.Reader].
func (r *scrubbed) Read(p []byte) (int, error) {
	for len(r.out) == 0 && r.err == nil && len(p) > 0 {
		n, err := r.from.Read(p)
		var feedErr error
		r.out, feedErr = r.feed.next(p[:n], err != nil)
		r.err = err
		if feedErr != nil {
			r.err = feedErr
		}
		if err != nil && r.end != nil {
			r.end()
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	if len(r.out) > 0 {
		return n, nil
	}
	return n, r.err
}

// scrubbedBody is the body of an answer.
type scrubbedBody struct {
	scrubbed
	io.Closer
}

// scrubbedConn is the server's side of an upgraded connection.
type scrubbedConn struct {
	scrubbed
	io.WriteCloser
}

// CloseWrite ends the client's side.
func (c *scrubbedConn) CloseWrite() error {
	if w, ok := c.WriteCloser.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
