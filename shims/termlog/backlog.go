package termlog

import "fmt"

// backlogSize bounds the waiting output, in bytes, while chatd restarts, or when the terminal
// prints more than chatd reads.
const backlogSize = 1 << 20

// backlog is the end of the output that was not passed on: a ring that drops the oldest bytes and
// counts them. It never delays the terminal.
type backlog struct {
	buf   []byte
	start int
	have  int
	lost  int64
}

func newBacklog(size int) *backlog { return &backlog{buf: make([]byte, size)} }

// add puts p at the end.
func (b *backlog) add(p []byte) {
	if n := len(p) - len(b.buf); n > 0 {
		b.lost += int64(n)
		p = p[n:]
	}
	if n := b.have + len(p) - len(b.buf); n > 0 {
		b.lost += int64(n)
		b.take(n)
	}
	for len(p) > 0 {
		n := copy(b.buf[(b.start+b.have)%len(b.buf):], p)
		n = min(n, len(p))
		b.have, p = b.have+n, p[n:]
	}
}

// next is what comes next, as far as it lies in one piece.
func (b *backlog) next() []byte {
	return b.buf[b.start:min(len(b.buf), b.start+b.have)]
}

// take drops the first n bytes. An empty backlog begins at the front again, so that a quiet
// terminal never touches more than a page.
func (b *backlog) take(n int) {
	b.start, b.have = (b.start+n)%len(b.buf), b.have-n
	if b.have == 0 {
		b.start = 0
	}
}

// note is the line that says how much was lost; nil if nothing was.
func (b *backlog) note() []byte {
	if b.lost == 0 {
		return nil
	}
	return fmt.Appendf(nil, "\r\n[chatd left %d bytes out]\r\n", b.lost)
}
