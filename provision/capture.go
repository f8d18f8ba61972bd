package provision

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// capture stores the head and the tail of a stream, max bytes in total, and counts all bytes. A
// command never blocks on its own output, and the daemon's memory stays bounded.
type capture struct {
	max  int
	head []byte
	// tail is a ring; next is the index of its oldest byte once it is full.
	tail  []byte
	next  int
	total int64
	// out receives each piece too; may be nil.
	out func([]byte)
}

func newCapture(max int64) capture { return capture{max: int(max)} }

// headSize and tailSize are the stored bytes of each end.
func (c *capture) headSize() int { return c.max / 2 }
func (c *capture) tailSize() int { return c.max - c.headSize() }

func (c *capture) take(f *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		c.add(buf[:n])
		if n > 0 && c.out != nil {
			c.out(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (c *capture) add(p []byte) {
	c.total += int64(len(p))
	n := min(len(p), c.headSize()-len(c.head))
	c.head, p = appendUpTo(c.headSize(), c.head, p[:n]), p[n:]
	n = min(len(p), c.tailSize()-len(c.tail))
	c.tail, p = appendUpTo(c.tailSize(), c.tail, p[:n]), p[n:]
	for len(p) > 0 {
		n = copy(c.tail[c.next:], p)
		c.next, p = (c.next+n)%len(c.tail), p[n:]
	}
}

// appendUpTo appends p to b, which never has a length or a capacity above most.
func appendUpTo(most int, b, p []byte) []byte {
	if need := len(b) + len(p); need > cap(b) {
		b = append(make([]byte, 0, min(most, max(need, 2*cap(b)))), b...)
	}
	return append(b, p...)
}

// bytes returns the stored bytes, the head and then the tail.
func (c *capture) bytes() []byte {
	return bytes.Join([][]byte{c.head, c.tail[c.next:], c.tail[:c.next]}, nil)
}

// text returns the stored bytes as valid UTF-8: invalid bytes become U+FFFD. A line in the
// middle tells how many bytes are left out.
func (c *capture) text() string {
	if !c.truncated() {
		return strings.ToValidUTF8(string(c.bytes()), "\uFFFD")
	}
	c.unroll()
	const most = len("\n[chatd left 9223372036854775807 bytes out]\n")
	head, tail := c.head[:chat.WholeRunes(c.head)], wholeStart(c.tail[min(len(c.tail), most):])
	var b strings.Builder
	b.Grow(c.max)
	writeValid(&b, head)
	fmt.Fprintf(&b, "\n[chatd left %d bytes out]\n", c.total-int64(len(head)+len(tail)))
	writeValid(&b, tail)
	return b.String()
}

// unroll rotates the tail in place, so that it begins with its oldest byte.
func (c *capture) unroll() {
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

// wholeStart returns b without a character that is cut at its start.
func wholeStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

func (c *capture) truncated() bool { return c.total > int64(c.max) }
