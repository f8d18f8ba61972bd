package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/chatd/chatd/chat"
)

// Call is the caller's end of [Tools.Serve]: it sends req, and body after it
// when req streams, to w, and reads the answer from r. Content goes to what
// begin returns for the first answer, at most limit bytes of it. A failure of
// the tool is returned as a [*Failure].
//
// w is closed once all is sent, or when body fails: then the tool drops what it
// had. Call returns as soon as the answer is there, also when nobody read all of
// body; a body that may block has to be closed by its owner.
//
// The other end is a process of the chat. What it says is bounded, and is
// nothing but its word.
func Call(w io.WriteCloser, r io.Reader, req Request, body io.Reader, begin func(Answer) io.Writer, limit int64) (Answer, error) {
	body = failing(body)
	sent := make(chan error, 1)
	go func() { sent <- send(w, req, body) }()
	a, err := receive(bufio.NewReaderSize(r, 64<<10), begin, limit)
	if b, ok := body.(*bodyReader); ok {
		if e := b.failed.Load(); e != nil {
			return a, errors.Join(fmt.Errorf("cannot read the content to send: %w", *e), err)
		}
	}
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return a, err // a tool that answers early does not read the rest, and need not
	}
	select {
	case e := <-sent:
		err = errors.Join(e, err)
	default:
	}
	return a, err
}

// bodyReader remembers the error of a caller's content, which must not look like
// one of the pipe.
type bodyReader struct {
	r      io.Reader
	failed atomic.Pointer[error]
}

func failing(body io.Reader) io.Reader {
	if body == nil {
		return nil
	}
	return &bodyReader{r: body}
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.failed.Store(&err)
	}
	return n, err
}

func send(w io.WriteCloser, req Request, body io.Reader) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := writeLine(w, req); err != nil {
		return fmt.Errorf("cannot send the request: %w", err)
	}
	if body == nil {
		return nil
	}
	c := chunkWriter{w}
	if _, err := io.CopyBuffer(c, body, make([]byte, bufferSize)); err != nil {
		return fmt.Errorf("cannot send the content: %w", err)
	}
	return c.end()
}

// errTooMuch: the tool sent more content than was asked for.
var errTooMuch = errors.New("more content than the limit")

func receive(r *bufio.Reader, begin func(Answer) io.Writer, limit int64) (Answer, error) {
	first, err := readAnswer(r)
	if err != nil || !first.Content {
		return first, err
	}
	chunks := &chunkReader{r: r}
	n, err := io.CopyBuffer(onlyWriter{begin(first)}, io.LimitReader(chunks, limit), make([]byte, bufferSize))
	if err == nil && n == limit {
		if extra, e := io.CopyN(io.Discard, chunks, 1); extra > 0 {
			err = errTooMuch
		} else if e != io.EOF {
			err = e
		}
	}
	if err != nil {
		return first, fmt.Errorf("cannot receive the content: %w", err)
	}
	last, err := readAnswer(r)
	if err == nil && last.Bytes != n {
		err = fmt.Errorf("cannot use the answer: %d bytes announced, %d came", last.Bytes, n)
	}
	return last, err
}

// onlyWriter hides ReadFrom, which would choose another buffer.
type onlyWriter struct{ io.Writer }

func readAnswer(r *bufio.Reader) (Answer, error) {
	var a Answer
	line, err := readLine(r)
	if err == nil {
		err = decode(line, &a)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("cannot read the answer: %w", noEOF(err))
	}
	if a.Failure == nil {
		return a, nil
	}
	if d := a.Failure.Denial; d != nil {
		d.Path, d.Rule, d.Place = cut(d.Path, MaxPath), cut(d.Rule, MaxPath), cut(d.Place, MaxPath)
	}
	a.Failure.Message = strings.ToValidUTF8(cut(a.Failure.Message, maxMessage), "")
	if a.Failure.Denial != nil && a.Failure.Kind != "denied" {
		return a, fmt.Errorf("cannot use the answer: a denial of kind %s", chat.Quote(a.Failure.Kind))
	}
	return a, a.Failure
}

// noEOF keeps io.EOF from looking like a good end.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bufferSize is what a copy costs.
const bufferSize = 128 << 10
