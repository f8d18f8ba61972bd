package termlog

import (
	"bytes"
	"fmt"
)

// backlogSize bounds the waiting output, in bytes, while chatd restarts, or when the terminal
// prints more than chatd reads.
const backlogSize = 1 << 20

// backlog is the end of the output that was not passed on. It drops the oldest bytes over its size,
// counts them, and never delays the terminal.
type backlog struct {
	bytes.Buffer
	size int
	lost int64
}

// newBacklog reserves twice what a full backlog and one more piece take, so that the buffer never
// grows.
func newBacklog(size int) *backlog {
	b := &backlog{size: size}
	b.Grow(2 * (size + pieceSize))
	return b
}

// add puts p at the end.
func (b *backlog) add(p []byte) {
	b.Write(p)
	if over := b.Len() - b.size; over > 0 {
		b.Next(over)
		b.lost += int64(over)
	}
}

// take drops the first n bytes. An empty backlog begins at the front again, so that a quiet
// terminal never touches more than a page.
func (b *backlog) take(n int) {
	if b.Next(n); b.Len() == 0 {
		b.Reset()
	}
}

// note is the line that says how much was lost; nil if nothing was.
func (b *backlog) note() []byte {
	if b.lost == 0 {
		return nil
	}
	return fmt.Appendf(nil, "\r\n[chatd left %d bytes out]\r\n", b.lost)
}
