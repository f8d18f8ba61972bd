package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

const (
	// maxLookups is how many names are looked up simultaneously. More wait.
	maxLookups = 64
	// lookupTimeout bounds a lookup with all its queries.
	lookupTimeout = 15 * time.Second
	// So many lookups begin immediately, and then one every lookupEvery. More wait for their turn,
	// as long as programs ask: 5 s, twice (resolv.conf(5)).
	burst, lookupEvery, turnTimeout = 100, time.Second / 50, 10 * time.Second
)

// Errors of [Client.Addrs].
var (
	// ErrNoName is NXDOMAIN (RFC 8020).
	ErrNoName = errors.New("there is no such name")
	// ErrNoAddr is for a name that has other records only.
	ErrNoAddr = errors.New("the name has no address")
	// ErrUnavailable is for no answer, or none that is of use.
	ErrUnavailable = errors.New("no DNS server answered usefully")
	// ErrBusy is for a lookup whose turn did not come.
	ErrBusy = errors.New("too many names are being looked up")
)

// Dial connects to a server, by UDP or by TCP.
type Dial = func(ctx context.Context, server int, udp bool) (net.Conn, error)

// Client looks names up at the host's DNS servers, for one chat: it is a stub resolver (RFC 1034,
// section 5.3.1) with a cache. Its methods are safe for concurrent use.
type Client struct {
	servers int
	dial    Dial
	slots   chan struct{}
	next    chan struct{}    // whose turn it is
	rate    *quota.Allowance // of next

	mu      sync.Mutex
	cache   cache
	flights map[string]*flight
}

// flight is a lookup under way, for everybody who waits for that name.
type flight struct {
	done    chan struct{}
	found   result // once done is closed
	waiting int
	cancel  context.CancelFunc
}

// NewClient returns a Client of so many servers.
func NewClient(servers int, dial Dial) *Client {
	return &Client{
		servers: servers, dial: dial,
		slots: make(chan struct{}, maxLookups), next: make(chan struct{}, 1),
		rate:  quota.NewAllowance(burst, lookupEvery, time.Now),
		cache: cache{}, flights: map[string]*flight{},
	}
}

// Addrs returns the addresses of a host name, from its A and its AAAA records, at most 16 of each.
// If only one kind can be found, it is enough. The errors are [ErrNoName], [ErrNoAddr],
// [ErrUnavailable], [ErrBusy], and that of ctx.
func (c *Client) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	name, err := chat.CheckHost(host)
	if err != nil {
		return nil, fmt.Errorf("cannot look up a name: %w", err)
	}
	found, err := c.find(ctx, name)
	if err = errors.Join(err, found.err); err != nil {
		return nil, fmt.Errorf("cannot look up %s: %w", name, err)
	}
	return slices.Clone(found.addrs), nil
}

// find takes the result from the cache, or waits for a flight. The last one to give up waiting
// cancels it.
func (c *Client) find(ctx context.Context, name string) (result, error) {
	c.mu.Lock()
	if found, ok := c.cache.get(name, time.Now()); ok {
		c.mu.Unlock()
		return found, nil
	}
	f := c.flights[name]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[name] = f
		var flying context.Context
		flying, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		go c.fly(flying, name, f)
	}
	f.waiting++
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.found, nil
	case <-ctx.Done():
		c.leave(name, f)
		return result{}, ctx.Err()
	}
}

func (c *Client) leave(name string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		c.forget(name, f)
	}
}

// forget lets the next one start a flight. Another one may have the name already.
func (c *Client) forget(name string, f *flight) {
	if c.flights[name] == f {
		delete(c.flights, name)
	}
}

// fly looks a name up, and keeps the result unless nobody waits for it or no server was asked.
func (c *Client) fly(ctx context.Context, name string, f *flight) {
	defer f.cancel()
	f.found = c.lookUp(ctx, name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil && !errors.Is(f.found.err, ErrBusy) {
		c.cache.put(name, f.found, time.Now())
	}
	c.forget(name, f)
	close(f.done)
}

// lookUp waits for its turn, and asks for both families simultaneously.
func (c *Client) lookUp(ctx context.Context, name string) result {
	if !c.begin(ctx) {
		return result{err: ErrBusy}
	}
	defer func() { <-c.slots }()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var v4, v6 result
	var both sync.WaitGroup
	both.Go(func() { v4 = c.chase(ctx, name, typeA) })
	both.Go(func() { v6 = c.chase(ctx, name, typeAAAA) })
	both.Wait()
	return merge(v4, v6)
}

// begin takes one of slots when it is the lookup's turn: they begin in the order in which they
// came.
func (c *Client) begin(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	select {
	case c.next <- struct{}{}:
		defer func() { <-c.next }()
	case <-ctx.Done():
		return false
	}
	if !c.rate.Wait(ctx) {
		return false
	}
	select {
	case c.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
