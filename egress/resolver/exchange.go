package resolver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// tryTimeout is how long one server may take for one answer.
	tryTimeout = 2 * time.Second
	// maxDatagram is more than a server may send: payloadSize.
	maxDatagram = 4096
)

var (
	errTruncated = errors.New("the answer is truncated")
	errOther     = errors.New("it answers another query")
)

// ask asks the servers in order, then once again without EDNS, which old ones do not understand
// (RFC 6891, section 6.2.2). NXDOMAIN is an answer, and ends it.
func (c *Client) ask(
	ctx context.Context, name dnsmessage.Name, kind dnsmessage.Type,
) (answer, error) {
	q := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	err := ErrUnavailable
	for _, withEDNS := range []bool{true, false} {
		for server := range c.servers {
			a, failure := c.try(ctx, server, q, withEDNS)
			if failure == nil {
				return a, nil
			}
			err = fmt.Errorf("%w: server %d: %w", ErrUnavailable, server+1, failure)
			if ctx.Err() != nil {
				return answer{}, err
			}
		}
	}
	return answer{}, err
}

// try asks one server, by UDP and, for what does not fit into a datagram, by TCP (RFC 7766, section
// 5).
func (c *Client) try(
	ctx context.Context, server int, q dnsmessage.Question, withEDNS bool,
) (answer, error) {
	// The ID and the socket's port are what somebody who forges an answer has to guess (RFC 5452).
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{q},
	}
	if withEDNS {
		m.Additionals = edns(dnsmessage.RCodeSuccess, false)
	}
	packed, err := m.Pack()
	if err != nil {
		return answer{}, err
	}
	x := exchange{id: m.ID, question: q, query: packed}
	a, err := c.exchange(ctx, server, true, x)
	if errors.Is(err, errTruncated) {
		a, err = c.exchange(ctx, server, false, x)
	}
	return a, err
}

// exchange sends the query on a connection of its own, and closes it.
func (c *Client) exchange(
	ctx context.Context, server int, udp bool, x exchange,
) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	conn, err := c.dial(ctx, server, udp)
	if err != nil {
		return answer{}, err
	}
	end := sync.OnceValue(conn.Close)
	stop := context.AfterFunc(ctx, func() { _ = end() }) // the error is that of the call below
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = ctx.Err() // which closed the connection
		}
		stop()
		err = errors.Join(err, end())
	}()
	if udp {
		return x.datagram(conn)
	}
	return x.stream(conn)
}

// exchange is one query and what its answer is compared with.
type exchange struct {
	id       uint16
	question dnsmessage.Question
	query    []byte
}

// datagram waits for the answer to this query, and passes over others: forged ones, and late ones
// (RFC 5452, section 9.1).
func (x exchange) datagram(conn net.Conn) (answer, error) {
	if _, err := conn.Write(x.query); err != nil {
		return answer{}, err
	}
	buf := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return answer{}, err
		}
		a, err := x.read(buf[:n])
		if !errors.Is(err, errOther) {
			return a, err
		}
	}
}

func (x exchange) stream(conn net.Conn) (answer, error) {
	if err := writeFrame(conn, x.query); err != nil {
		return answer{}, err
	}
	msg, err := readFrame(conn, maxMessage)
	if err != nil {
		return answer{}, err
	}
	a, err := x.read(msg)
	if errors.Is(err, errTruncated) {
		err = errors.New("the answer is truncated by TCP too")
	}
	return a, err
}

// read reads a message. The error is errOther if it does not answer the query, and errTruncated if
// the answer is longer. Codes other than success and NXDOMAIN say that this server cannot answer.
func (x exchange) read(msg []byte) (answer, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || h.OpCode != 0 || h.ID != x.id {
		return answer{}, errOther
	}
	question, err := readQuestion(&p)
	if err != nil || !x.asked(question) {
		return answer{}, errOther
	}
	switch {
	case h.Truncated:
		return answer{}, errTruncated
	case h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError:
		return answer{}, fmt.Errorf("it answers with code %d", h.RCode)
	}
	a, err := readAnswer(&p, h.RCode, x.question.Type)
	switch {
	case err != nil:
		return answer{}, err
	case lame(h, a):
		return answer{}, errors.New("it does not answer for this name, and does not ask others")
	}
	return a, nil
}

// lame reports whether an empty answer means that the server does not know, as res_send.c of glibc
// has it: it neither answers for the name's zone nor asks others.
func lame(h dnsmessage.Header, a answer) bool {
	empty := len(a.addrs) == 0 && len(a.aliases) == 0
	return empty && h.RCode == dnsmessage.RCodeSuccess && !h.Authoritative && !h.RecursionAvailable
}

func (x exchange) asked(q dnsmessage.Question) bool {
	return q.Type == x.question.Type && q.Class == x.question.Class &&
		fold(q.Name) == fold(x.question.Name)
}
