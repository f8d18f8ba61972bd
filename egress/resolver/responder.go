package resolver

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chatd/chatd/chat"
)

// Errors for which [Responder].Asked is told of a name, beside those of [Client.Addrs] and
// [Book.Addrs].
var (
	ErrNotListed = errors.New("the name is not listed")
	ErrType      = errors.New("only addresses of names are answered")
)

// Responder answers the DNS queries of one chat. Its methods are safe for concurrent use.
type Responder struct {
	// Lists reports whether the chat may know the name, which has the form of [chat.CheckHost]. It
	// is called for each query, because the list may change.
	Lists  func(host string) bool
	Book   *Book
	Client *Client
	// Asked is told of each refused or failed name, before the answer, unless the query's context
	// has ended. A name that is no host name is quoted.
	Asked func(host string, why error)
}

// Answer returns the answer to one query (RFC 1035, section 4.1), or nil to drop it: it has no
// whole header, or is an answer itself. One for which [Client] looks a name up may be late. No
// answer is longer than 512 bytes, by UDP and by TCP.
func (r *Responder) Answer(ctx context.Context, query []byte) []byte {
	q, code, ok := readQuery(query)
	switch {
	case !ok:
		return nil
	case code != dnsmessage.RCodeSuccess:
		return q.pack(reply{code: code})
	}
	return q.pack(r.reply(ctx, q))
}

// reply decides on a query. An unlisted name is refused before anything else looks at it.
func (r *Responder) reply(ctx context.Context, q query) reply {
	host, err := q.host()
	if err != nil {
		r.Asked(chat.Quote(q.question.Name.String()), err)
		return reply{code: dnsmessage.RCodeNameError}
	}
	kind := q.question.Type
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return loopback(kind)
	}
	if answer, ok := r.reverse(host, kind); ok {
		return answer
	}
	if !r.Lists(host) {
		r.Asked(host, ErrNotListed)
		return reply{code: dnsmessage.RCodeNameError}
	}
	switch kind {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		return r.addr(ctx, host, kind)
	case typeSVCB, typeHTTPS:
		return reply{}
	}
	r.Asked(host, ErrType)
	return reply{code: dnsmessage.RCodeRefused}
}

// loopback answers for localhost and the names below it (RFC 6761, section 6.3).
func loopback(kind dnsmessage.Type) reply {
	switch kind {
	case dnsmessage.TypeA:
		return reply{body: addrBody(netip.AddrFrom4([4]byte{127, 0, 0, 1}))}
	case dnsmessage.TypeAAAA:
		return reply{body: addrBody(netip.IPv6Loopback())}
	}
	return reply{}
}

// addr answers with the made-up address of a listed name that has a real one. The families of the
// real addresses do not matter: package egress connects to any of them.
func (r *Responder) addr(ctx context.Context, host string, kind dnsmessage.Type) reply {
	v4, v6, err := r.findAddrs(ctx, host)
	if err != nil && ctx.Err() == nil {
		r.Asked(host, err)
	}
	switch {
	case errors.Is(err, ErrNoName):
		return reply{code: dnsmessage.RCodeNameError}
	case errors.Is(err, ErrNoAddr):
		return reply{}
	case err != nil:
		return reply{code: dnsmessage.RCodeServerFailure}
	case kind == dnsmessage.TypeA:
		return reply{body: addrBody(v4)}
	}
	return reply{body: addrBody(v6)}
}

// findAddrs returns the made-up addresses. A name without real ones takes no place in the book.
func (r *Responder) findAddrs(ctx context.Context, host string) (v4, v6 netip.Addr, err error) {
	if _, err := r.Client.Addrs(ctx, host); err != nil {
		return v4, v6, err
	}
	return r.Book.Addrs(host)
}
