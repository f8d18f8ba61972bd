package redact

import (
	"errors"
	"io"
)

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

// Body returns the body of an answer without the texts, which are asked for with each piece. end is
// called before the end is told.
func Body(body io.ReadCloser, texts func() []string, end func()) io.ReadCloser {
	return &scrubbedBody{scrubbed{from: body, feed: &scrubber{texts: texts}, end: end}, body}
}

type scrubbedBody struct {
	scrubbed
	io.Closer
}

// WebSocket returns a server's side of a WebSocket connection (RFC 6455) without the texts in what
// the server sends.
func WebSocket(server io.ReadWriteCloser, texts func() []string) io.ReadWriteCloser {
	feed := &frames{scrub: scrubber{texts: texts}}
	return &scrubbedConn{scrubbed{from: server, feed: feed}, server}
}

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
