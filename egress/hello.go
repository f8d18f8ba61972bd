package egress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// helloTimeout bounds the time until the ClientHello is whole.
	helloTimeout = 10 * time.Second
	// maxHello bounds it with the bytes after it that come with it, and the headers of records.
	// crypto/tls bounds the ClientHello itself to 64 KiB.
	maxHello = 72 << 10
)

// checkHello reads a ClientHello that begins with b, and returns the bytes that were read. Its
// server name (SNI: RFC 6066, section 3) must be the target's. crypto/tls reads it, as a server
// does.
func (c connection) checkHello(t target, b []byte) ([]byte, error) {
	if err := c.client.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	r := &recorder{Conn: c.client, begin: b}
	name, err := serverName(r)
	if err == nil {
		err = c.client.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, err
	}
	if name == "" && t.withoutName(c.n.allowed()) {
		return r.read, nil
	}
	if name == "" {
		return nil, refusal(fmt.Sprintf("TLS without a server name: the address stands for %s", t))
	}
	if host, err := chat.CheckHost(name); err != nil || host != t.host {
		return nil, mismatch(t, "TLS", name)
	}
	return r.read, nil
}

func mismatch(t target, kind, got string) error {
	return refusal(fmt.Sprintf("%s to %s: the address stands for %s", kind, chat.Quote(got), t))
}

// serverName reads a ClientHello, and goes no further.
func serverName(r *recorder) (name string, err error) {
	errSeen := errors.New("seen")
	err = tls.Server(r, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errSeen
		},
	}).Handshake()
	if !errors.Is(err, errSeen) {
		return "", refusal(fmt.Sprintf("cannot read a ClientHello: %s", text(err)))
	}
	return name, nil
}

// recorder is a connection that is only read, and keeps what was.
type recorder struct {
	net.Conn
	begin []byte // was read before
	read  []byte
}

// Read reads the beginning, then the connection.
func (r *recorder) Read(p []byte) (n int, err error) {
	if len(r.read) >= maxHello {
		return 0, errors.New("it is too large")
	}
	if len(r.begin) > 0 {
		n = copy(p, r.begin)
		r.begin = r.begin[n:]
	} else {
		n, err = r.Conn.Read(p)
	}
	r.read = append(r.read, p[:n]...)
	return n, err
}

// Write drops alerts: the client is to see a reset.
func (r *recorder) Write(p []byte) (int, error) { return io.Discard.Write(p) }

// Close leaves the connection open.
func (r *recorder) Close() error { return nil }
