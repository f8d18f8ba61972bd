package egress

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/egress/redact"
)

// scrubbed passes one request on, and scrubs the headers of its answers.
func (s *terminated) scrubbed(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(scrubbedWriter{w, s}, r)
		redact.Header(w.Header(), s.traces()) // the trailers, which are sent now
	})
}

// scrubbedWriter scrubs the headers of informational answers (RFC 9110, section 15.2), of which
// ReverseProxy tells nobody else.
type scrubbedWriter struct {
	http.ResponseWriter
	s *terminated
}

// WriteHeader is that of [http.ResponseWriter].
func (w scrubbedWriter) WriteHeader(code int) {
	redact.Header(w.Header(), w.s.traces())
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (w scrubbedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// traces are the texts that must not reach the client: those of the secrets as of now, and what the
// session has sent.
func (s *terminated) traces() []string {
	now := traces(s.c.n.secretsFor(s.t))
	s.webSession.mu.Lock()
	defer s.webSession.mu.Unlock()
	all := append(now, s.sent...)
	slices.Sort(all)
	return slices.Compact(all)
}

// quoted adds texts as an error quotes them.
func quoted(texts []string) (all []string) {
	for _, t := range texts {
		q := strconv.Quote(t)
		all = append(all, t, q[1:len(q)-1])
	}
	return all
}

// secureProxy sends requests to the target's server, with values in the place of placeholders.
func (s *terminated) secureProxy(b *webBuffers) *httputil.ReverseProxy {
	p := s.reverseProxy(secretTransport{s}, b)
	p.Rewrite, p.ModifyResponse, p.ErrorHandler = s.rewriteSecure, s.scrubAnswer, s.failedSecure
	return p
}

func (s *terminated) rewriteSecure(p *httputil.ProxyRequest) {
	s.rewrite(p)
	if !strings.EqualFold(p.Out.Header.Get("Upgrade"), "websocket") {
		p.Out.Header.Del("Connection")
		p.Out.Header.Del("Upgrade")
	}
	wantLegible(p.Out.Header)
}

// secretTransport puts values into requests that are sent.
type secretTransport struct{ s *terminated }

// RoundTrip is that of [http.RoundTripper]. The request is a copy of the client's.
func (t secretTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	granted := t.s.c.n.secretsFor(t.s.t)
	put, err := putSecrets(r.Header, granted)
	if err != nil {
		return nil, err
	}
	if put {
		t.s.remember(traces(granted))
		r.Header.Del("Range") // a part may have a part of the value
		r.Header.Del("If-Range")
	}
	a, err := t.s.transport.RoundTrip(r)
	if err == nil && put && a.StatusCode == http.StatusPartialContent {
		return nil, errors.Join(errPart, a.Body.Close())
	}
	return a, err
}

// remember keeps what was sent in the session: an answer may come after the chat's secrets have
// changed.
func (s *terminated) remember(texts []string) {
	s.webSession.mu.Lock()
	defer s.webSession.mu.Unlock()
	s.sent = append(s.sent, texts...)
	slices.Sort(s.sent)
	s.sent = slices.Compact(s.sent)
}

// scrubAnswer takes values out of an answer.
func (s *terminated) scrubAnswer(a *http.Response) error {
	if err := legible(a); err != nil {
		return err
	}
	if err := s.checkAnswer(a); err != nil {
		return err
	}
	a.Status = "" // its text is the server's
	redact.Header(a.Header, s.traces())
	both, ok := a.Body.(io.ReadWriteCloser)
	if ok && a.StatusCode == http.StatusSwitchingProtocols {
		a.Body = redact.WebSocket(both, s.traces)
		return nil
	}
	end := func() { redact.Header(a.Trailer, s.traces()) }
	a.Body = redact.Body(a.Body, s.traces, end)
	return nil
}

// failedSecure answers a request that could not be passed on.
func (s *terminated) failedSecure(w http.ResponseWriter, r *http.Request, err error) {
	why := errors.New(redact.Text(text(err), quoted(s.traces())))
	if r.Context().Err() == nil {
		s.logged(why)
	}
	http.Error(w, fmt.Sprintf("cannot reach %s: %s", s.t, why), http.StatusBadGateway)
}
