package backup

import (
	"context"
	"io"
)

// interruptible reads until ctx ends, also from a pipe that is silent.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

// Read is [io.Reader]. The last read of a source that never answers stays behind.
func (r interruptible) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		b := make([]byte, len(p))
		n, err := r.in.Read(b)
		done <- result{b[:n], err}
	}()
	select {
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	case got := <-done:
		return copy(p, got.b), got.err
	}
}

// interrupted writes until ctx ends.
type interrupted struct {
	ctx context.Context
	out io.Writer
}

// Write is [io.Writer].
func (w interrupted) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.out.Write(p)
}
