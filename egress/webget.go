package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// getBuffer is how large a request is that is carried here.
	getBuffer = 4 << 10
	// watchAfter is how long an answer may take until it is looked whether the client is gone.
	watchAfter = time.Second
	// maxInformational is how many informational answers come before one, as in net/http.
	maxInformational = 5
)

// gets carries the simplest requests of a session in one loop: a GET of HTTP/1.1 with no body and
// no field for the connection, whose bytes come together. net/http hands each request from one
// goroutine to another several times. What is anything else stays unread for it, so that nothing
// is refused here; so does what no answer begins to, which net/http then asks once more.
type gets struct {
	s       *webSession
	in      *bufio.Reader // from the client
	out     *bufio.Writer // to the server, and then to the client
	server  net.Conn      // nil if there is none
	limit   io.LimitedReader
	answers *bufio.Reader // from the server
}

// carryGets carries until there comes what is for net/http. The session is over if the client has
// ended it, or an answer has broken off.
func (s *webSession) carryGets() (over bool, err error) {
	g := &gets{s: s, in: bufio.NewReaderSize(s, getBuffer),
		out: bufio.NewWriterSize(nil, getBuffer)}
	g.answers = bufio.NewReaderSize(g, getBuffer)
	for {
		r, size, err := g.next()
		if errors.Is(err, io.EOF) {
			g.hangUp()
			return true, nil
		}
		answered := false
		if r != nil {
			answered, err = g.exchange(r)
		}
		if err != nil {
			g.hangUp()
			return true, err
		}
		if !answered {
			break
		}
		_, _ = g.in.Discard(size) // it is in the buffer
	}
	b, _ := g.in.Peek(g.in.Buffered())
	s.begin = append(slices.Clone(b), s.begin...)
	s.idle = g.server
	return false, nil
}

// next reads a request, and leaves its bytes, of which it tells the number, in the buffer. There is
// none if net/http is to read it. The error is [io.EOF] where the client has ended.
func (g *gets) next() (r *http.Request, size int, err error) {
	if _, err := g.in.Peek(1); err != nil {
		return nil, 0, err
	}
	b, _ := g.in.Peek(g.in.Buffered())
	const end = "\r\n\r\n"
	size = bytes.Index(b, []byte(end)) + len(end)
	if size < len(end) || !bytes.HasPrefix(b, []byte("GET /")) {
		return nil, 0, nil
	}
	for line := range bytes.SplitSeq(b[:size], []byte("\r\n")) {
		if bytes.ContainsFunc(line, unprintable) {
			return nil, 0, nil
		}
	}
	r, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(b[:size])))
	if err != nil || !simple(r) || g.s.check(r, "http") != nil {
		return nil, 0, nil
	}
	return r, size, nil
}

func unprintable(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// simple reports whether a request has no body and asks for nothing of the connection.
func simple(r *http.Request) bool {
	if r.Proto != "HTTP/1.1" || len(r.TransferEncoding) > 0 || r.Trailer != nil || r.Close {
		return false
	}
	if c := r.Header["Connection"]; len(c) == 1 && strings.EqualFold(c[0], "keep-alive") {
		delete(r.Header, "Connection")
	}
	for name := range r.Header {
		if slices.Contains(hopByHop, name) || name == "Expect" || name == "Content-Length" ||
			strings.ContainsFunc(name, notInToken) {
			return false
		}
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // else net/http adds its own
	}
	return true
}

// hopByHop are the fields that are for one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// exchange sends a request, and passes its answer on if one begins.
func (g *gets) exchange(r *http.Request) (answered bool, err error) {
	if g.server == nil {
		if g.server, err = g.s.dial(g.s.c.ctx, "", ""); err != nil {
			g.server = nil
			return false, nil
		}
		g.answers.Reset(g)
	}
	defer g.watch(g.server)()
	a, err := g.ask(r)
	if err != nil {
		g.hangUp()
		return false, nil
	}
	last := a.Close
	forClient(a)
	if err := errors.Join(a.Write(g.out), g.out.Flush()); err != nil {
		return false, err
	}
	if last || g.answers.Buffered() > 0 {
		g.hangUp()
	}
	return true, nil
}

// ask sends a request and reads the header of its answer. Informational answers go to the client.
func (g *gets) ask(r *http.Request) (*http.Response, error) {
	g.out.Reset(g.server)
	err := r.Write(g.out)
	for range maxInformational {
		g.limit.N = maxHeader
		var a *http.Response
		if err == nil {
			a, err = http.ReadResponse(g.answers, r)
		}
		if err != nil {
			return nil, err
		}
		g.out.Reset(g.s)
		switch {
		case a.StatusCode == http.StatusSwitchingProtocols || fields(a.Header) > maxFields:
			return nil, errors.New("an answer that net/http is to read")
		case a.StatusCode >= http.StatusOK:
			g.limit.N = math.MaxInt64
			return a, nil
		}
		err = errors.Join(a.Write(g.out), g.out.Flush())
	}
	return nil, errors.New("too many informational answers")
}

// Read reads from the server, and sends what is written before it waits.
func (g *gets) Read(p []byte) (int, error) {
	if err := g.out.Flush(); err != nil {
		return 0, err
	}
	g.limit.R = g.server
	return g.limit.Read(p)
}

// forClient removes what an answer says of the connection to the server. One that ends with that
// connection has chunks.
func forClient(a *http.Response) {
	for _, names := range a.Header["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			a.Header.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		a.Header.Del(name)
	}
	a.Proto, a.ProtoMajor, a.ProtoMinor, a.Close = "HTTP/1.1", 1, 1, false
	if a.ContentLength < 0 {
		a.TransferEncoding = []string{"chunked"}
	}
}

// watch ends the connection to the server if its answer takes long and the client goes. The caller
// ends the watch.
func (g *gets) watch(server net.Conn) (end func()) {
	client, done := g.s.c.client, make(chan struct{})
	t := time.AfterFunc(watchAfter, func() {
		defer close(done)
		n, err := readable(client)
		if n <= 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			_ = server.Close() // what waits for it fails
		}
	})
	return func() {
		if !t.Stop() {
			_ = client.SetReadDeadline(time.Unix(1, 0)) // an error: it is closed
			<-done
			_ = client.SetReadDeadline(time.Time{})
		}
	}
}

func (g *gets) hangUp() {
	if g.server != nil {
		_ = g.server.Close() // nothing is expected of it
		g.server = nil
	}
}
