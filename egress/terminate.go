package egress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	maxStreams      = 8 // of a connection
	maxServers      = 8 // connections to the server, for one of HTTP/2 to a server of HTTP/1
	maxSecretHeader = 16 << 10
	clientWindow    = 64 << 10    // the least that HTTP/2 has; the client is near
	serverWindow    = 256 << 10   // of a connection, and of each stream
	keepUnused      = time.Minute // a client's connection without a request
)

// terminator ends TLS of connections to the hosts of a chat's secrets, and sends their requests
// anew over TLS of its own.
type terminator struct {
	*handover
	roots  atomic.Pointer[x509.CertPool] // by which real servers are known
	leaves leaves
	copies webBuffers
}

func newTerminator(s *server, roots *x509.CertPool) *terminator {
	w := &terminator{handover: newHandover(s.log, &http.Server{
		IdleTimeout:    keepUnused,
		MaxHeaderBytes: maxSecretHeader,
		Protocols:      protocols(true),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: clientWindow,
			MaxReceiveBufferPerStream:     clientWindow,
		},
	})}
	w.roots.Store(roots)
	w.leaves.making, w.leaves.kept = make(chan struct{}, 1), map[string]*tls.Certificate{}
	return w
}

// failure is why something that the list opens could not be carried, though it was connected.
type failure struct{ error }

// Unwrap returns the reason.
func (f failure) Unwrap() error { return f.error }

// terminated is a session whose client speaks TLS.
type terminated struct {
	*webSession
	transport *http.Transport
	sent      []string // texts of secrets that were put into requests; of webSession.mu
}

// carry ends TLS of a client, of whom b was read before, and serves its requests. It returns when
// all connections are closed, except for server's socket where it was not used.
func (w *terminator) carry(c connection, t target, server *net.TCPConn, b []byte) error {
	leaf, err := w.leaves.get(c.ctx, c.n, t.host)
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates:           []tls.Certificate{*leaf},
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // another connection has another key for them
	}
	s := &terminated{webSession: newWebSession(c, t, server, b)}
	s.scheme, s.cost = "https", streamsCost-idleCost
	leave, err := s.enter(idleCost)
	if err != nil {
		return err
	}
	defer leave()
	s.transport = s.secureTransport(w.roots.Load())
	s.handler = s.scrubbed(s.secureProxy(&w.copies))
	// net/http speaks HTTP/2 of a *tls.Conn alone.
	config.VerifyConnection = s.asClient
	w.pass(s.webSession, tls.Server(s.webSession, config), s.transport)
	return nil
}

// asClient is called before the first request. To the server goes HTTP/2, which costs more, only
// for a client that speaks it.
func (s *terminated) asClient(client tls.ConnectionState) error {
	s.http1 = client.NegotiatedProtocol != "h2"
	s.greets = !s.http1
	if s.http1 {
		s.cost = activeCost - idleCost
		s.transport.Protocols = protocols(false)
	}
	return nil
}

// secureTransport connects to the target's server alone, and checks that it is the target's.
func (s *terminated) secureTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            s.dial,
		Protocols:              protocols(true),
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    1,
		MaxConnsPerHost:        maxServers,
		ExpectContinueTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxSecretHeader,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: s.t.host,
			MinVersion: tls.VersionTLS12},
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerConnection: serverWindow,
			MaxReceiveBufferPerStream:     serverWindow,
		},
	}
}

// logged says why a request of the session failed, once.
func (s *terminated) logged(err error) {
	s.c.refuse(failure{fmt.Errorf("cannot reach %s over TLS: %w", s.t, err)})
}
