package stream

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// Capture stores the head and the tail of a stream, a bounded number of bytes in total, and counts
// all bytes.
type Capture struct {
	// headMax and tailMax bound the stored bytes of each end.
	headMax, tailMax int
	head             []byte
	// tail is a ring; next is the index of its oldest byte once it is full.
	tail  []byte
	next  int
	total int64
	// reservation counts the stored bytes; nil sets no bound.
	reservation *Reservation
}

// NewCapture stores at most max bytes, half of them of the head.
func NewCapture(max int64) *Capture {
	return &Capture{headMax: int(max / 2), tailMax: int(max - max/2)}
}

// Within makes the stored bytes count in p. Without room for more, the Capture stores less.
func (c *Capture) Within(p *Reservation) *Capture {
	c.reservation = p
	return c
}

// Total is how many bytes the stream had.
func (c *Capture) Total() int64 { return c.total }

// Truncated reports whether the stream had more than is stored.
func (c *Capture) Truncated() bool { return c.total > int64(len(c.head)+len(c.tail)) }

// DrainTime is how long the streams are read on once no process of the run lives. The pipes have
// all its output by then; their write ends may outlive it: a descriptor that was sent over a unix
// socket (SCM_RIGHTS, unix(7)) lives in its receiver.
const DrainTime = 2 * time.Second

// Take reads a stream until it ends, fails or meets its deadline. Each piece goes to out too,
// which may be nil.
func (c *Capture) Take(f io.Reader, out func([]byte)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		c.Add(buf[:n])
		if n > 0 && out != nil {
			out(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// Add takes a piece of the stream.
func (c *Capture) Add(p []byte) {
	c.total += int64(len(p))
	p = c.fill(&c.head, &c.headMax, p)
	p = c.fill(&c.tail, &c.tailMax, p)
	if len(c.tail) == 0 {
		return // there was no room for any
	}
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next, p = (c.next+n)%len(c.tail), p[n:]
	}
}

// fill appends to b as much of p as fits, and returns the rest. The capacity of b never exceeds
// max, which fill lowers to it when the place has no room for more.
func (c *Capture) fill(b *[]byte, limit *int, p []byte) []byte {
	n := min(len(p), *limit-len(*b))
	if need := len(*b) + n; need > cap(*b) {
		more := min(*limit, max(need, 2*cap(*b))) - cap(*b)
		got := int(c.reservation.grow(int64(more)))
		if got < more {
			*limit = cap(*b) + got
		}
		*b = append(make([]byte, 0, cap(*b)+got), *b...)
		n = min(n, *limit-len(*b))
	}
	*b = append(*b, p[:n]...)
	return p[n:]
}

// Bytes returns the stored bytes, the head and then the tail.
func (c *Capture) Bytes() []byte {
	return bytes.Join([][]byte{c.head, c.tail[c.next:], c.tail[:c.next]}, nil)
}

// Text returns the stored bytes as valid UTF-8: invalid bytes become U+FFFD. A line in the
// middle tells how many bytes are left out.
func (c *Capture) Text() string {
	if !c.Truncated() {
		return strings.ToValidUTF8(string(c.Bytes()), "\uFFFD")
	}
	head, tail := c.ends()
	var b strings.Builder
	b.Grow(len(c.head) + len(c.tail))
	writeValid(&b, head)
	fmt.Fprintf(&b, "\n[chatd left %d bytes out]\n", c.total-int64(len(head)+len(tail)))
	writeValid(&b, tail)
	return b.String()
}

// ends are what the text has of the head and of the tail, in whole characters.
func (c *Capture) ends() (head, tail []byte) {
	const note = len("\n[chatd left 9223372036854775807 bytes out]\n")
	c.unroll()
	return c.head[:chat.WholeRunes(c.head)], WholeStart(c.tail[min(len(c.tail), note):])
}

// Replaced counts the bytes that are U+FFFD in the text.
func (c *Capture) Replaced() int64 {
	if !c.Truncated() {
		return chat.InvalidBytes(c.Bytes())
	}
	head, tail := c.ends()
	return chat.InvalidBytes(head) + chat.InvalidBytes(tail)
}

// unroll rotates the tail in place, so that it begins with its oldest byte.
func (c *Capture) unroll() {
	slices.Reverse(c.tail[:c.next])
	slices.Reverse(c.tail[c.next:])
	slices.Reverse(c.tail)
	c.next = 0
}

func writeValid(b *strings.Builder, p []byte) {
	if !utf8.Valid(p) {
		p = bytes.ToValidUTF8(p, []byte("\uFFFD"))
	}
	b.Write(p)
}

// WholeStart returns b without a character that is cut at its start.
func WholeStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// ReadFile takes the kept bytes of a stream in a file; missed is how many found no room there.
func (c *Capture) ReadFile(f *File) (missed int64, err error) {
	total, missed, err := f.Counts()
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 32<<10)
	for pos := int64(0); pos < total; {
		n, at, err := f.ReadAt(buf[:min(int64(len(buf)), total-pos)], pos)
		if err != nil || n == 0 {
			return missed, err
		}
		if at > pos {
			c.skip(at)
		}
		c.Add(buf[:n])
		pos = at + int64(n)
	}
	return missed, nil
}

// skip goes on at position pos of the stream, which lies in its tail.
func (c *Capture) skip(pos int64) {
	c.tail, c.next, c.total = c.tail[:0], 0, pos
}
