package resolver

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// upstream is DNS servers in memory.
type upstream struct {
	t testing.TB
	// say returns the messages that a server sends for a query, if any.
	say func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message

	mu    sync.Mutex
	asked []asked
	open  int // connections
}

type asked struct {
	name   string
	kind   dnsmessage.Type
	server int
	udp    bool
	edns   bool
}

func (u *upstream) client(servers int) *Client {
	return NewClient(servers, u.dial)
}

func (u *upstream) dial(ctx context.Context, server int, udp bool) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	go u.serve(there, server, udp)
	return here, nil
}

// serve reads one query, answers it, and waits for the client to close the connection.
func (u *upstream) serve(c net.Conn, server int, udp bool) {
	u.count(1)
	defer u.count(-1)
	defer func() { _ = c.Close() }()
	var packed []byte
	var err error
	if udp {
		packed = make([]byte, maxMessage)
		var n int
		n, err = c.Read(packed)
		packed = packed[:n]
	} else {
		packed, err = readFrame(c, maxMessage)
	}
	if err != nil {
		return // the client has given up
	}
	var q dnsmessage.Message
	if err := q.Unpack(packed); err != nil {
		u.t.Errorf("server %d: %v", server, err)
		return
	}
	u.note(q, server, udp)
	for _, m := range u.say(q, server, udp) {
		if err := u.send(c, m, udp); err != nil {
			return // the client has its answer
		}
	}
	_, _ = io.Copy(io.Discard, c)
}

func (u *upstream) send(c net.Conn, m dnsmessage.Message, udp bool) error {
	packed, err := m.Pack()
	if err != nil {
		u.t.Error(err)
		return err
	}
	if !udp {
		return writeFrame(c, packed)
	}
	_, err = c.Write(packed)
	return err
}

func (u *upstream) note(q dnsmessage.Message, server int, udp bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	name := strings.TrimSuffix(q.Questions[0].Name.String(), ".")
	a := asked{name, q.Questions[0].Type, server, udp, len(q.Additionals) > 0}
	u.asked = append(u.asked, a)
}

func (u *upstream) count(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open += n
}

// queries returns what was asked until now.
func (u *upstream) queries() []asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked)
}

// zone is what a server knows: for each name its addresses, or "-> " and the name behind it.
type zone map[string][]string

// say answers as a server that follows aliases within the zone.
func (z zone) say(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
	name := strings.ToLower(strings.TrimSuffix(q.Questions[0].Name.String(), "."))
	m := says(q, dnsmessage.RCodeSuccess)
	for range 40 {
		values, ok := z[name]
		if !ok {
			m.RCode = dnsmessage.RCodeNameError
			break
		}
		target := ""
		for _, v := range values {
			m.Answers = append(m.Answers, rr(name, 60, v))
			target, _ = strings.CutPrefix(v, "-> ")
		}
		if len(values) == 0 || !strings.HasPrefix(values[0], "-> ") {
			break
		}
		name = strings.ToLower(target)
	}
	kind := q.Questions[0].Type
	m.Answers = slices.DeleteFunc(m.Answers, func(r dnsmessage.Resource) bool {
		return r.Header.Type != kind && r.Header.Type != dnsmessage.TypeCNAME
	})
	return []dnsmessage.Message{m}
}

// says returns an answer to a query.
func says(
	q dnsmessage.Message, code dnsmessage.RCode, records ...dnsmessage.Resource,
) dnsmessage.Message {
	return dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: code,
		},
		Questions: q.Questions, Answers: slices.Clone(records), // Pack changes them
	}
}

// rr returns a record: of an address, or an alias after "-> ".
func rr(name string, ttl uint32, value string) dnsmessage.Resource {
	r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
		Name: dnsmessage.MustNewName(name + "."), Class: dnsmessage.ClassINET, TTL: ttl,
	}}
	if target, alias := strings.CutPrefix(value, "-> "); alias {
		r.Header.Type = dnsmessage.TypeCNAME
		r.Body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(target + ".")}
		return r
	}
	a := netip.MustParseAddr(value)
	r.Body, r.Header.Type = addrBody(a), dnsmessage.TypeAAAA
	if a.Is4() {
		r.Header.Type = dnsmessage.TypeA
	}
	return r
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}
