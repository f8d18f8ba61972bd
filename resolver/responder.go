package resolver

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chatd/chatd/chat"
)

const (
	// burst and perSecond bound the queries of a chat.
	burst, perSecond = 100, 50
	// maxAsking is how many queries of a chat wait for the host's DNS servers simultaneously, so
	// that one chat does not take all of [Client]'s lookups.
	maxAsking = 32
)

// Errors for which [ResponderOptions].Asked is told of a name, beside those of [Client.Addrs] and
// [Book.Addrs].
var (
	ErrNotListed = errors.New("the name is not listed")
	ErrType      = errors.New("only addresses of names are answered")
	ErrBusy      = errors.New("too many names are being looked up")
)

// ResponderOptions are what a [Responder] needs.
type ResponderOptions struct {
	// Lists reports whether the chat may know the name, which has the form of [chat.CheckHost]. It
	// is called for each query, because the list may change.
	Lists  func(host string) bool
	Book   *Book
	Client *Client
	// Asked is told of each refused or failed name, before the answer, unless the query's context
	// has ended. A name that is no host name is quoted. It may be nil.
	Asked func(host string, why error)
	// Now is time.Now if it is nil.
	Now func() time.Time
}

// Responder answers the DNS queries of one chat. Its methods are safe for concurrent use.
type Responder struct {
	o      ResponderOptions
	rate   bucket
	asking chan struct{}
}

// NewResponder returns a Responder.
func NewResponder(o ResponderOptions) *Responder {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Asked == nil {
		o.Asked = func(string, error) {}
	}
	return &Responder{
		o:      o,
		rate:   bucket{tokens: burst, last: o.Now()},
		asking: make(chan struct{}, maxAsking),
	}
}

// Answer returns the answer to one query (RFC 1035, section 4.1), or nil to drop it: it has no
// whole header, is an answer itself, or is over the rate. No answer is longer than 512 bytes, so
// udp makes no difference to it.
func (r *Responder) Answer(ctx context.Context, query []byte, udp bool) []byte {
	if !r.rate.take(r.o.Now()) {
		return nil
	}
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
		r.o.Asked(chat.Quote(q.question.Name.String()), err)
		return reply{code: dnsmessage.RCodeNameError}
	}
	kind := q.question.Type
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return loopback(kind)
	}
	if answer, ok := r.reverse(host, kind); ok {
		return answer
	}
	if !r.o.Lists(host) {
		r.o.Asked(host, ErrNotListed)
		return reply{code: dnsmessage.RCodeNameError}
	}
	switch kind {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		return r.addr(ctx, host, kind)
	case typeSVCB, typeHTTPS:
		return reply{}
	}
	r.o.Asked(host, ErrType)
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
		r.o.Asked(host, err)
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
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	default:
		return v4, v6, ErrBusy
	}
	if _, err := r.o.Client.Addrs(ctx, host); err != nil {
		return v4, v6, err
	}
	return r.o.Book.Addrs(host)
}

// bucket bounds a rate: it holds up to burst tokens, and gets perSecond of them in a second.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

// take takes one token, and is false if there is none.
func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if passed := now.Sub(b.last); passed > 0 {
		b.tokens = min(burst, b.tokens+passed.Seconds()*perSecond)
		b.last = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
