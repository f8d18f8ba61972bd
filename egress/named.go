package egress

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// named carries a connection by name. Until the client's first bytes say what it speaks, they are
// kept here. The server's bytes go to the client from the beginning, for where the server speaks
// first (SSH, SMTP, MySQL) the client may wait for them.
//
// A server of HTTP never speaks first. So a client whose server has spoken may send what has the
// form of a request, such as SMTP's EHLO.
func (c connection) named(t target, server *net.TCPConn) error {
	var reader turn
	in := make(chan error, 1)
	go func() { in <- c.pump(c.client, server, c.received, reader.take) }()
	first, err := c.open(t, server)
	switch {
	case err != nil:
	case (first.protocol == web1 || first.protocol == tlsEnded) && reader.take():
		err = server.SetReadDeadline(time.Unix(1, 0)) // the pump returns
		if err = errors.Join(err, <-in, server.SetReadDeadline(time.Time{})); err != nil {
			return err
		}
		if first.protocol == tlsEnded {
			return c.n.s.terminator.carry(c, t, server, first.bytes)
		}
		return c.n.s.web.carry(c, t, server, first.bytes)
	default:
		err = c.write(server, first.bytes)
	}
	if err != nil {
		c.fail(err) // the pump returns
		return errors.Join(err, <-in)
	}
	first.bytes = nil // an idle connection holds no buffer
	return errors.Join(c.pump(server, c.client, c.sent, nil), <-in)
}

// opening is the beginning of what a client sends.
type opening struct {
	protocol protocol
	bytes    []byte
}

// protocol is what a client speaks, as far as its first bytes say.
type protocol int

const (
	undecided protocol = iota // more bytes say it
	anything                  // passes as it is
	tlsRecord                 // RFC 8446, section 5.1
	web1                      // HTTP/1: RFC 9112, section 3
	tlsEnded                  // TLS that is ended here
	web2                      // HTTP/2 without TLS: RFC 9113, section 3.3
)

// maxMethod is the length of the longest word that may be the method of a request.
const maxMethod = 20

// protocolOf reads first bytes. The method of a request is a word of capitals and a space: any
// server that takes it for HTTP gets it from here, and not from the client.
func protocolOf(b []byte) protocol {
	switch {
	case len(b) == 0, len(b) == 1 && b[0] == 0x16:
		return undecided
	case b[0] == 0x16 && b[1] == 0x03:
		return tlsRecord
	}
	word := slices.IndexFunc(b, func(r byte) bool { return r < 'A' || 'Z' < r })
	switch {
	case word < 0 && len(b) <= maxMethod:
		return undecided
	case word < 1 || word > maxMethod || b[word] != ' ':
		return anything
	case string(b[:word]) == "PRI":
		return web2
	}
	return web1
}

// open reads the client's first bytes until they say what it speaks, and checks TLS.
func (c connection) open(t target, server *net.TCPConn) (opening, error) {
	var b []byte
	for {
		n, err := readable(c.client)
		if err != nil || n == 0 {
			return opening{anything, b}, err
		}
		if b, err = c.more(b); err != nil {
			return opening{}, err
		}
		if b, err = c.passNewlines(b, server); err != nil {
			return opening{}, err
		}
		switch p := protocolOf(b); p {
		case undecided:
		case tlsRecord:
			b, err = c.checkHello(t, b)
			if err == nil && len(c.n.secretsFor(t)) > 0 {
				p = tlsEnded
			} else {
				p = anything
			}
			return opening{p, b}, err
		case web2:
			return opening{}, refusal(fmt.Sprintf("HTTP/2 without TLS to %s", t))
		default:
			return opening{p, b}, nil
		}
	}
}

// more appends what the client sends.
func (c connection) more(b []byte) ([]byte, error) {
	b = slices.Grow(b, 2048)
	n, err := c.client.Read(b[len(b):cap(b)])
	return b[:len(b)+n], err
}

// passNewlines passes leading line ends on, and returns the rest of b. Servers ignore them before a
// request (RFC 9112, section 2.2), so they may not hide one. Elsewhere they may be all that a
// client sends (RFC 1288, section 2.3).
func (c connection) passNewlines(b []byte, server *net.TCPConn) ([]byte, error) {
	n := slices.IndexFunc(b, func(r byte) bool { return r != '\r' && r != '\n' })
	if n < 0 {
		n = len(b)
	}
	return b[n:], c.write(server, b[:n])
}
