package filewire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Exchange is the caller's part in a call of a tool, beside the request.
type Exchange struct {
	// Body is the content of a request that streams. It is not read before the tool has passed its
	// checks.
	Body io.Reader
	// Begin receives the first answer of a tool with content, and returns the content's writer.
	Begin Begin
	// Limit bounds the content from the tool, in bytes.
	Limit int64
}

// Speak is the caller's end of a tool's Serve, for a tool that has its request ([Send]). It writes
// the content to w when the tool asks for it, and reads the answer from r. It returns a failure of
// the tool as a [*Failure].
//
// It closes w at the end, and when the content fails: the tool then discards what it has. Speak
// returns as soon as the answer arrives, even if the content was not all read. The owner of a body
// that may block has to close it.
//
// The other end is a process of the chat. Its messages are bounded, and cannot be trusted.
func Speak(w io.WriteCloser, r io.Reader, x Exchange) (Answer, error) {
	c := &caller{Exchange: x, w: w, r: bufio.NewReaderSize(r, 64<<10), sent: make(chan error, 1)}
	defer w.Close() // an error of it shows when the answer is read
	a, err := c.receive()
	var sent error
	select {
	case sent = <-c.sent:
	default:
	}
	if body, ok := errors.AsType[*BodyError](sent); ok {
		return a, errors.Join(body, err)
	}
	if _, failed := errors.AsType[*Failure](err); failed || err == nil {
		return a, err // a tool that answers early need not read the rest
	}
	return a, errors.Join(sent, err)
}

// BodyError is the error of a caller whose content could not be read.
type BodyError struct{ Err error }

// Error names the cause.
func (e *BodyError) Error() string { return "cannot read the content to send: " + e.Err.Error() }

// Unwrap is the owner's error.
func (e *BodyError) Unwrap() error { return e.Err }

// caller is one call.
type caller struct {
	Exchange
	w       io.WriteCloser
	r       *bufio.Reader
	sent    chan error // one error, or nil, once the content was sent
	sending bool
}

// bodyReader marks errors of a caller's content, so that they differ from the pipe's.
type bodyReader struct{ r io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		err = &BodyError{err}
	}
	return n, err
}

// errTooMuch means that the tool sent more content than requested.
var errTooMuch = errors.New("more content than the limit")

func (c *caller) receive() (Answer, error) {
	first, err := c.answer()
	if err != nil || !first.Content {
		return first, err
	}
	if c.Begin == nil {
		return first, errors.New("cannot use the answer: content that nobody asked for")
	}
	chunks := NewChunkReader(c.r)
	n, err := Copy(c.Begin(first), io.LimitReader(chunks, c.Limit))
	if err == nil && n == c.Limit {
		if extra, e := io.CopyN(io.Discard, chunks, 1); extra > 0 {
			err = errTooMuch
		} else if e != io.EOF {
			err = e
		}
	}
	if err != nil {
		return first, fmt.Errorf("cannot receive the content: %w", err)
	}
	last, err := c.answer()
	if err == nil && last.Bytes != n {
		err = fmt.Errorf("cannot use the answer: %d bytes announced, %d came", last.Bytes, n)
	}
	return last, err
}

// answer handles the tool's messages until it answers.
func (c *caller) answer() (Answer, error) {
	for {
		s, err := readMessage(c.r)
		switch {
		case err != nil:
			return Answer{}, err
		case s.Links != nil:
			err = errors.New("cannot use the answer: it tells of links, and nobody asked")
		case s.Send:
			err = c.send()
		default:
			return s.Answer, s.Answer.Check()
		}
		if err != nil {
			return Answer{}, err
		}
	}
}

// send starts sending the content, once.
func (c *caller) send() error {
	switch {
	case c.sending:
		return errors.New("cannot send the content: the tool may not have it")
	case c.Body == nil:
		return errors.New("cannot send the content: there is none")
	}
	c.sending = true
	go func() {
		chunks := NewChunkWriter(c.w)
		_, err := Copy(chunks, bodyReader{c.Body})
		if err == nil {
			err = chunks.End()
		} else {
			err = fmt.Errorf("cannot send the content: %w", err)
		}
		c.sent <- err // before the tool sees the end, because its answer ends the call
		if err != nil {
			_ = c.w.Close() // the tool discards what it has
		}
	}()
	return nil
}

// Copy copies content through one buffer of [BufferSize]: neither ReadFrom of w nor WriteTo of r
// chooses another.
func Copy(w io.Writer, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, BufferSize))
}

func readMessage(r *bufio.Reader) (Message, error) {
	var s Message
	line, err := ReadLine(r, MaxSaid)
	if err == nil {
		err = Decode(line, &s)
	}
	if err != nil {
		return Message{}, fmt.Errorf("cannot read the answer: %w", NoEOF(err))
	}
	return s, nil
}

// NoEOF keeps io.EOF from looking like a good end.
func NoEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// BufferSize is the memory of one copy, in bytes.
const BufferSize = 128 << 10
