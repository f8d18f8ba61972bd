package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
)

// serveTerminated passes one request on, or refuses it.
func serveTerminated(w http.ResponseWriter, r *http.Request) {
	s, ok := r.Context().Value(sessionKey{}).(*terminated)
	if !ok {
		http.Error(w, "cannot tell the connection", http.StatusInternalServerError)
		return
	}
	if err := s.check(r, "https"); err != nil {
		s.c.refuse(err)
		w.Header().Set("Connection", "close")
		http.Error(w, "cannot pass on a request: "+text(err), http.StatusMisdirectedRequest)
		return
	}
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // none but the server's
	out := scrubbedWriter{w, s}
	// An answer may begin before its request ends.
	_ = http.NewResponseController(w).EnableFullDuplex()
	s.proxy.ServeHTTP(out, r)
	scrubHeader(w.Header(), s.traces()) // the trailers, which are sent now
}

// scrubbedWriter scrubs the headers of informational answers (RFC 9110, section 15.2), of which
// ReverseProxy tells nobody else.
type scrubbedWriter struct {
	http.ResponseWriter
	s *terminated
}

// WriteHeader is that of [http.ResponseWriter].
func (w scrubbedWriter) WriteHeader(code int) {
	scrubHeader(w.Header(), w.s.traces())
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (w scrubbedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// traces are the texts that must not reach the client, as of now.
func (s *terminated) traces() []string { return traces(s.c.n.secretsFor(s.t)) }

// secureProxy sends requests to the target's server, with values in the place of placeholders.
func (s *terminated) secureProxy(b *webBuffers) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        s.rewriteSecure,
		Transport:      secretTransport{s},
		FlushInterval:  -1,
		BufferPool:     b,
		ModifyResponse: s.scrubAnswer,
		ErrorLog:       s.c.n.s.terminator.server.ErrorLog,
		ErrorHandler:   s.failedSecure,
	}
}

func (s *terminated) rewriteSecure(p *httputil.ProxyRequest) {
	s.rewrite(p)
	p.Out.URL.Scheme = "https"
	if !strings.EqualFold(p.Out.Header.Get("Upgrade"), "websocket") {
		p.Out.Header.Del("Connection")
		p.Out.Header.Del("Upgrade")
	}
	// What extensions do to frames, and codings to bodies, would hide a value.
	p.Out.Header.Del("Sec-Websocket-Extensions")
	gzip := strings.Contains(p.Out.Header.Get("Accept-Encoding"), "gzip")
	p.Out.Header.Set("Accept-Encoding", "identity")
	if gzip {
		p.Out.Header.Del("Accept-Encoding") // http.Transport asks for it, and decodes
	}
}

// secretTransport puts values into requests that are sent.
type secretTransport struct{ s *terminated }

// RoundTrip is that of [http.RoundTripper]. The request is a copy of the client's.
func (t secretTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := putSecrets(r.Header, t.s.c.n.secretsFor(t.s.t)); err != nil {
		return nil, err
	}
	return t.s.transport.RoundTrip(r)
}

// scrubAnswer takes values out of an answer.
func (s *terminated) scrubAnswer(a *http.Response) error {
	coding := a.Header.Get("Content-Encoding")
	if coding != "" && !strings.EqualFold(coding, "identity") &&
		a.Request.Method != http.MethodHead {
		return errors.New("the server's answer has a coding that was not asked for")
	}
	scrubHeader(a.Header, s.traces())
	scrub := scrubber{traces: s.traces}
	both, ok := a.Body.(io.ReadWriteCloser)
	if ok && a.StatusCode == http.StatusSwitchingProtocols {
		feed := &frames{scrub: scrub}
		a.Body = &scrubbedConn{scrubbed{from: both, feed: feed}, both}
		return nil
	}
	var feed feeder = &scrub
	if inMessages(a.Header.Get("Content-Type")) {
		feed = &messages{scrub: scrub}
	}
	end := func() { scrubHeader(a.Trailer, s.traces()) }
	a.Body = &scrubbedBody{scrubbed{from: a.Body, feed: feed, end: end}, a.Body}
	return nil
}

// inMessages reports whether a body is a stream of messages with their lengths.
func inMessages(kind string) bool {
	return kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+") ||
		strings.HasPrefix(kind, "application/connect+")
}

// failedSecure answers a request that could not be passed on.
func (s *terminated) failedSecure(w http.ResponseWriter, r *http.Request, err error) {
	why := errors.New(scrubText(text(err), s.traces()))
	if r.Context().Err() == nil {
		s.logged(why)
	}
	http.Error(w, fmt.Sprintf("cannot reach %s: %s", s.t, why), http.StatusBadGateway)
}
