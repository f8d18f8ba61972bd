package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/stream"
)

// WriteStdin is [verbs.Chats]. It writes as fast as the run reads.
func (s *Streams) WriteStdin(
	ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool,
) error {
	err := s.below.WriteStdin(ctx, id, run, last, func(ctx context.Context, to stream.Input) error {
		return copyTo(ctx, run, to, body)
	})
	if err != nil {
		_ = body.Close() // its reader may wait for input that is no longer needed
	}
	return err
}

// copyTo copies body to a run, until ctx ends, and closes the run's end.
func copyTo(ctx context.Context, run string, to stream.Input, body io.ReadCloser) error {
	defer to.W.Close() // nothing is kept back
	// The end of the run or of its caller unblocks both reads and writes.
	defer context.AfterFunc(ctx, func() {
		_ = body.Close()
		_ = to.W.SetWriteDeadline(time.Unix(1, 0))
	})()
	w := io.Writer(to.W)
	if to.Framed {
		w = stream.InputFrames(w)
	}
	from := bodyReader{body, nil}
	_, err := io.CopyBuffer(onlyWriter{w}, &from, make([]byte, 32<<10))
	switch {
	case err == nil:
		return nil
	case from.err != nil:
		return &filewire.BodyError{Err: from.err}
	case errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("cannot write to run %s: nobody reads its standard input any more: %w",
			run, chat.ErrWrongPhase)
	}
	return fmt.Errorf("cannot write to run %s: %w", run, err)
}

// bodyReader keeps why its body could not be read.
type bodyReader struct {
	io.Reader
	err error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// onlyWriter has [io.CopyBuffer] use its buffer.
type onlyWriter struct{ io.Writer }
