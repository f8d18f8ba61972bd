package egress

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// webBuffer is how many bytes each answer has while it is passed on. An answer that is a stream of
// events (SSE) has them for as long.
const webBuffer = 8 << 10

// flushAfter is how long a part of an answer of known length may wait for the next one, which is
// there already most times: passed on immediately, a header and its body are two packets, and the
// former needs a goroutine. Streams of events and answers of unknown length never wait
// ([httputil.ReverseProxy]).
const flushAfter = 2 * time.Millisecond

// serveSession passes one request on, or refuses it and ends the connection.
func serveSession(w http.ResponseWriter, r *http.Request) {
	s := r.Context().Value(sessionKey{}).(*webSession)
	defer s.rests(1)
	if s.accepts(w, r) {
		s.handler.ServeHTTP(w, r)
	}
}

// accepts reports whether a request may be passed on, and answers one that may not.
func (s *webSession) accepts(w http.ResponseWriter, r *http.Request) bool {
	code, err := http.StatusServiceUnavailable, s.serving()
	if err != nil {
		w.Header().Set("Retry-After", "10")
	} else if err = s.check(r); err != nil {
		s.c.refuse(err)
		code = http.StatusMisdirectedRequest
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		http.Error(w, "cannot pass on a request: "+text(err), code)
		return false
	}
	w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // none but the server's
	// An answer may begin before its request ends.
	_ = http.NewResponseController(w).EnableFullDuplex()
	return true
}

// check refuses a request to another host than the target's. Where the request has an absolute
// URI, r.Host is that URI's, and its field Host is not sent on (RFC 9112, section 3.2.2).
func (s *webSession) check(r *http.Request) error {
	if fields(r.Header) > maxFields {
		return refusal("HTTP request with too many fields")
	}
	if r.Method == http.MethodConnect {
		return refusal(fmt.Sprintf("HTTP CONNECT to %s", chat.Quote(r.Host)))
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, fmt.Sprint(s.t.dst.Port())
	}
	name, err := chat.CheckHost(host)
	if err != nil || name != s.t.host || port != fmt.Sprint(s.t.dst.Port()) {
		return mismatch(s.t, "HTTP", r.Host)
	}
	if r.URL.Opaque != "" { // a server may read another host in it
		return refusal(fmt.Sprintf("HTTP request for %s", chat.Quote(r.URL.Opaque)))
	}
	if r.URL.Scheme != "" && r.URL.Scheme != s.scheme {
		return refusal(fmt.Sprintf("HTTP request for %s", chat.Quote(r.URL.Scheme)))
	}
	return nil
}

// reverseProxy sends requests to the target's server as they are.
func (s *webSession) reverseProxy(t http.RoundTripper, b *webBuffers) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        s.rewrite,
		Transport:      t,
		FlushInterval:  flushAfter,
		BufferPool:     b,
		ErrorLog:       s.c.n.s.web.server.ErrorLog,
		ErrorHandler:   s.failed,
		ModifyResponse: s.checkAnswer,
	}
}

// fields counts those of a header.
func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// rewrite restores what ReverseProxy leaves out of requests.
func (s *webSession) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = s.scheme, s.t.String()
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Host = p.In.Host
	for _, name := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
	if hides(p.Out.Header.Get("Upgrade")) {
		p.Out.Header.Del("Connection")
		p.Out.Header.Del("Upgrade")
		p.Out.Header.Del("Http2-Settings")
	} else if listsToken(p.Out.Header.Get("Upgrade"), "websocket") {
		// A server takes it out of a list, and ReverseProxy wants the same word from both.
		p.Out.Header.Set("Upgrade", "websocket")
	}
}

// listsToken reports whether a field that is a list (RFC 9110, section 5.6.1) has a token.
func listsToken(field, token string) bool {
	return slices.ContainsFunc(strings.Split(field, ","), func(t string) bool {
		return strings.EqualFold(strings.TrimSpace(t), token)
	})
}

// checkAnswer refuses an answer that switches to a protocol which the request did not ask for.
func (s *webSession) checkAnswer(a *http.Response) error {
	if fields(a.Header) > maxFields {
		return refusal("HTTP answer with too many fields")
	}
	if a.StatusCode != http.StatusSwitchingProtocols {
		return nil
	}
	asked, to := a.Request.Header.Get("Upgrade"), a.Header.Get("Upgrade")
	if asked == "" || !strings.EqualFold(asked, to) {
		return refusal(fmt.Sprintf("HTTP answer that switches to %s, which was not asked for",
			chat.Quote(to)))
	}
	s.switched.Store(true)
	return nil
}

// hides reports whether an upgrade leads to another protocol of the web, whose requests or names
// would not be seen here. A server may leave it out (RFC 9110, section 7.8).
func hides(upgrade string) bool {
	word := strings.ToLower(upgrade)
	for _, p := range []string{"h2c", "http/", "tls/"} {
		if strings.Contains(word, p) {
			return true
		}
	}
	return false
}

// failed answers a request that could not be passed on.
func (s *webSession) failed(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set("Connection", "close")
	http.Error(w, fmt.Sprintf("cannot reach %s: %s", s.t, text(err)), http.StatusBadGateway)
}

// webBuffers are those of answers that are passed on.
type webBuffers struct{ pool sync.Pool }

// Get is that of [httputil.BufferPool].
func (b *webBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[webBuffer]byte); ok {
		return p[:]
	}
	return make([]byte, webBuffer)
}

// Put is that of [httputil.BufferPool].
func (b *webBuffers) Put(p []byte) { b.pool.Put((*[webBuffer]byte)(p)) }
