package egress

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
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
	speaks, first, err := c.open(t, server)
	switch {
	case err != nil:
	case (speaks == web1 || speaks == tlsEnded) && reader.take():
		err = server.SetReadDeadline(time.Unix(1, 0)) // the pump returns
		if err = errors.Join(err, <-in, server.SetReadDeadline(time.Time{})); err != nil {
			return err
		}
		if speaks == tlsEnded {
			return c.n.s.terminator.carry(c, t, server, first)
		}
		return c.n.s.web.carry(c, t, server, first)
	default:
		err = c.write(server, first)
	}
	if err != nil {
		c.fail(err) // the pump returns
		return errors.Join(err, <-in)
	}
	// first is used no more: an idle connection holds no buffer.
	return errors.Join(c.pump(server, c.client, c.sent, nil), <-in)
}

// protocol is what a client speaks, as far as its first bytes say.
type protocol int

const (
	undecided protocol = iota // more bytes say it
	anything                  // passes as it is
	tlsRecord                 // RFC 8446, section 5.1
	oldHello                  // a ClientHello in the form of SSLv2: RFC 5246, appendix E.2
	web1                      // HTTP/1: RFC 9112, section 3
	tlsEnded                  // TLS that is ended here
	web2                      // HTTP/2 without TLS: RFC 9113, section 3.3
)

// maxLine is how long a first line may be until it tells what a client speaks.
const maxLine = 2 << 10

// protocolOf reads first bytes. Servers differ in what they take for a request, and one that is
// passed unread hides all that follow. So HTTP/1 is what servers take for it, and net/http refuses
// what is none:
//
//   - A line with "HTTP/" in it: net/http servers and Apache take methods of any characters
//     of a token (RFC 9110, section 5.6.2), of any length. An SSH client may say a version with a
//     space in it (RFC 4253, section 4.2), memcached has small letters: their lines have no HTTP/.
//   - GET and a space of any kind, at once: it may be HTTP/0.9, which has no version and no other
//     method (RFC 1945, section 4.1). So it is with CONNECT, for proxies.
//   - Another word of capitals before a path or a URI of HTTP, at once: some servers compare no
//     version. What follows such words in IRC, SMTP, RTSP, SIP, and Redis as people type it, is
//     neither.
//
// A line is read to its end only while it may be one of these. A byte that is in no method and no
// space before the first space says at once that it is not, as does a control character, except for
// one behind a word of capitals.
func protocolOf(b []byte) protocol {
	switch {
	case len(b) == 0, len(b) == 1 && b[0] == 0x16:
		return undecided
	case b[0] == 0x16 && b[1] == 0x03:
		return tlsRecord
	case b[0]&0x80 != 0 && len(b) < 3:
		return undecided
	case b[0]&0x80 != 0 && b[2] == 1:
		return oldHello
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	words := bytes.TrimLeftFunc(bytes.TrimRight(line, "\r"), blank)
	method, rest := words, []byte(nil)
	if i := bytes.IndexFunc(words, blank); i >= 0 {
		method, rest = words[:i], words[i:]
	}
	capitals := len(rest) > 0 && !bytes.ContainsFunc(method, func(r rune) bool {
		return r < 'A' || 'Z' < r
	})
	switch {
	case bytes.ContainsFunc(method, notInToken),
		!capitals && bytes.ContainsFunc(words, control):
		return anything
	case bytes.HasPrefix(line, []byte("PRI *")):
		return web2
	case bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")),
		capitals && asksWeb(method, rest):
		return web1
	case whole:
		return anything
	}
	return undecided
}

// asksWeb reports whether words of capitals and of what follows them ask for something of HTTP
// where there is no version.
func asksWeb(method, rest []byte) bool {
	if string(method) == "GET" || string(method) == "CONNECT" {
		return true
	}
	asked := string(bytes.ToLower(bytes.TrimLeftFunc(rest, blank)))
	return strings.HasPrefix(asked, "/") || strings.HasPrefix(asked, "http:") ||
		strings.HasPrefix(asked, "https:")
}

// blank reports whether a server may take r for a space: those of Python, beside those of RFC 9112,
// section 3.
func blank(r rune) bool { return r == ' ' || '\t' <= r && r <= '\r' || 0x1c <= r && r <= 0x1f }

func control(r rune) bool { return (r < ' ' || r == 0x7f) && !blank(r) }

func notInToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}

// open reads the client's first bytes until they say what it speaks, and checks TLS.
func (c connection) open(t target, server *net.TCPConn) (p protocol, b []byte, err error) {
	for {
		n, err := readable(c.client)
		if err != nil || n == 0 {
			return anything, b, err
		}
		if b, err = c.more(b); err != nil {
			return p, nil, err
		}
		if b, err = c.passNewlines(b, server); err != nil {
			return p, nil, err
		}
		switch p = protocolOf(b); p {
		case undecided:
			if len(b) > maxLine {
				return p, nil, refusal(fmt.Sprintf("a first line without an end to %s", t))
			}
		case tlsRecord:
			b, err = c.checkHello(t, b)
			if err == nil && len(c.n.secretsFor(t)) > 0 {
				p = tlsEnded
			} else {
				p = anything
			}
			return p, b, err
		case oldHello:
			return p, nil, refusal(fmt.Sprintf("TLS in the form of SSLv2 to %s", t))
		case web2:
			return p, nil, refusal(fmt.Sprintf("HTTP/2 without TLS to %s", t))
		default:
			return p, b, nil
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
