package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
)

// Exchange is the caller's part in a [Call], beside the request.
type Exchange struct {
	// Body is the content of a request that streams. It is not read before the tool
	// has found that it may have it.
	Body io.Reader
	// Begin takes the first answer of a tool with content, and says where it goes.
	Begin Begin
	// Limit is how many bytes of content are taken.
	Limit int64
	// Check answers what the tool asks; nil forbids nothing. What it denies is denied,
	// whatever the tool says then.
	Check Check
	// Links are absolute names of which Linked wants to know where they lead in the chat.
	// It is told, before anything is asked, of those that lead elsewhere, if there are any,
	// and the judge that it returns takes the place of Judge; nil leaves it.
	Links  []string
	Linked func(real map[string]string) (Check, error)
}

// Call is the caller's end of [Tools.Serve]: it sends req to w, and the content
// when the tool wants it, and reads the answer from r. A failure of the tool is
// returned as a [*Failure], what Judge denied as its [*Denial].
//
// w is closed in the end, and when the content fails: then the tool drops what it
// had. Call returns as soon as the answer is there, also when nobody read all of
// the content; a body that may block has to be closed by its owner.
//
// The other end is a process of the chat. What it says is bounded, and is
// nothing but its word.
func Call(w io.WriteCloser, r io.Reader, req Request, x Exchange) (Answer, error) {
	if err := checkNames(x.Links); err != nil {
		return Answer{}, errors.Join(err, w.Close())
	}
	req.Ask, req.Links = true, x.Links
	c := &caller{Exchange: x, w: w, r: bufio.NewReaderSize(r, 64<<10), sent: make(chan error, 1)}
	defer w.Close() // what went wrong with it, a read of the answer finds too
	first := make(chan error, 1)
	go func() { first <- writeLine(w, req) }() // longer than a pipe holds, and nobody may read
	a, err := c.receive()
	switch {
	case c.denied != nil:
		return Answer{}, c.denied
	case c.bodyError() != nil:
		return a, errors.Join(&BodyError{c.bodyError()}, err)
	}
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return a, err // a tool that answers early does not read the rest, and need not
	}
	select {
	case e := <-c.sent:
		err = errors.Join(e, err)
	case e := <-first:
		err = errors.Join(e, err)
	default:
	}
	return a, err
}

// BodyError is content that its owner could not give.
type BodyError struct{ Err error }

// Error says so, and why.
func (e *BodyError) Error() string { return "cannot read the content to send: " + e.Err.Error() }

// Unwrap is the owner's error.
func (e *BodyError) Unwrap() error { return e.Err }

// caller is one call.
type caller struct {
	Exchange
	w         io.WriteCloser
	r         *bufio.Reader
	body      *bodyReader
	sent      chan error // one error, or nil, once the content was sent
	sending   bool
	questions int
	denied    *Denial
	real      map[string]string
	settled   bool // no more links
}

// bodyReader remembers the error of a caller's content, which must not look like
// one of the pipe.
type bodyReader struct {
	r      io.Reader
	failed atomic.Pointer[error]
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.failed.Store(&err)
	}
	return n, err
}

func (c *caller) bodyError() error {
	if c.body == nil || c.body.failed.Load() == nil {
		return nil
	}
	return *c.body.failed.Load()
}

// errTooMuch: the tool sent more content than was asked for.
var errTooMuch = errors.New("more content than the limit")

func (c *caller) receive() (Answer, error) {
	first, err := c.answer()
	if err != nil || !first.Content {
		return first, err
	}
	if c.denied != nil || c.Begin == nil {
		return first, errors.New("cannot use the answer: content that nobody asked for")
	}
	chunks := &chunkReader{r: c.r}
	n, err := io.CopyBuffer(onlyWriter{c.Begin(first)}, io.LimitReader(chunks, c.Limit), make([]byte, bufferSize))
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

// answer reads on until the tool answers, and gives it what it waits for.
func (c *caller) answer() (Answer, error) {
	for {
		s, err := readMessage(c.r)
		if err == nil && s.Links == nil {
			err = c.settle()
		}
		switch {
		case err != nil:
			return Answer{}, err
		case s.Links != nil:
			err = c.follow(s.Links)
		case s.Ask != nil:
			err = c.check(*s.Ask)
		case s.Send:
			err = c.send()
		default:
			return s.Answer, s.check()
		}
		if err != nil {
			return Answer{}, err
		}
	}
}

// maxQuestions is far more than the tools ask in one call; replyTime is how long
// the end of the content may take to get from one goroutine to the other.
const (
	maxQuestions = 1000
	replyTime    = 10 * time.Second
)

func (c *caller) check(q question) error {
	c.questions++
	switch {
	case c.questions > maxQuestions:
		return fmt.Errorf("cannot answer the tool: more than %d questions", maxQuestions)
	case len(q.Path) > 2*MaxPath || !strings.HasPrefix(q.Path, "/") || strings.IndexByte(q.Path, 0) >= 0:
		return fmt.Errorf("cannot answer the tool: it asks about %s", chat.Quote(q.Path))
	case q.Op != Read && q.Op != Write && q.Op != Edit && q.Op != Bash:
		return fmt.Errorf("cannot answer the tool: it asks to %s", chat.Quote(string(q.Op)))
	}
	if c.sending {
		// The reply must not come between two chunks.
		select {
		case err := <-c.sent:
			c.sent <- err
		case <-time.After(replyTime):
			return errors.New("cannot answer the tool: it asks within the content")
		}
	}
	denied := c.denied
	if c.Check != nil && denied == nil {
		denied = c.Check(q.Op, q.Path)
	}
	if !q.Else {
		c.denied = denied
	}
	if err := writeLine(c.w, reply{Denied: denied != nil}); err != nil {
		return fmt.Errorf("cannot answer the tool: %w", err)
	}
	return nil
}

// send begins to send the content, once.
func (c *caller) send() error {
	switch {
	case c.sending || c.denied != nil:
		return errors.New("cannot send the content: the tool may not have it")
	case c.Body == nil:
		return errors.New("cannot send the content: there is none")
	}
	c.sending, c.body = true, &bodyReader{r: c.Body}
	go func() {
		chunks := chunkWriter{c.w}
		_, err := io.CopyBuffer(chunks, onlyReader{c.body}, make([]byte, bufferSize))
		if err == nil {
			err = chunks.end()
		} else {
			err = errors.Join(fmt.Errorf("cannot send the content: %w", err), c.w.Close())
		}
		c.sent <- err
	}()
	return nil
}

// onlyWriter hides ReadFrom, which would choose another buffer.
type onlyWriter struct{ io.Writer }

// onlyReader hides WriteTo, which would choose another buffer.
type onlyReader struct{ io.Reader }

func readMessage(r *bufio.Reader) (message, error) {
	var s message
	line, err := readLine(r, maxSaid)
	if err == nil {
		err = decode(line, &s)
	}
	if err != nil {
		return message{}, fmt.Errorf("cannot read the answer: %w", noEOF(err))
	}
	return s, nil
}

// check bounds what an answer says, and returns its failure.
func (s *message) check() error {
	a := &s.Answer
	if len(a.Path) > 2*MaxPath || len(a.Message) > MaxPath+maxMessage || len(a.NextEntry) > MaxPath || len(a.SHA256) > 64 ||
		len(a.DiffOmitted) > maxMessage || a.Size < 0 || a.Bytes < 0 || a.Offset < 0 {
		return errors.New("cannot use the answer: a field of it is out of all bounds")
	}
	if a.Failure == nil {
		return nil
	}
	if d := a.Failure.Denial; d != nil {
		d.Path, d.Rule, d.Place = cut(d.Path, MaxPath), cut(d.Rule, MaxPath), cut(d.Place, MaxPath)
		d.Message, d.Layer = strings.ToValidUTF8(cut(d.Message, maxMessage), ""), cut(d.Layer, maxMessage)
	}
	a.Failure.Message = strings.ToValidUTF8(cut(a.Failure.Message, maxMessage), "")
	if a.Failure.Denial != nil && a.Failure.Kind != "denied" {
		return fmt.Errorf("cannot use the answer: a denial of kind %s", chat.Quote(a.Failure.Kind))
	}
	return a.Failure
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
