package resolver

import (
	"errors"
	"net/netip"
	"slices"
	"time"
)

const (
	// maxCached is how many names the cache holds.
	maxCached = 4096
	// minTTL and maxTTL bound how long an answer is kept: a server cannot make every connection a
	// query, nor an address last long after the name has moved.
	minTTL, maxTTL = 5 * time.Second, 300 * time.Second
)

// result is what was found out about a name.
type result struct {
	addrs []netip.Addr
	err   error
	ttl   time.Duration // at most maxTTL
	until time.Time     // when the cache drops it
}

// merge makes one result of both families. Addresses of one are enough, but are not kept long if
// the other could not be asked. A name that does not exist has neither family (RFC 8020). Only two
// empty answers say that there is no address.
func merge(v4, v6 result) result {
	addrs := slices.Concat(v4.addrs, v6.addrs)
	errs := errors.Join(v4.err, v6.err)
	switch {
	case len(addrs) > 0 && errors.Is(errs, ErrUnavailable):
		return result{addrs: addrs, ttl: minTTL}
	case len(addrs) > 0 && v4.err == nil && v6.err == nil:
		return result{addrs: addrs, ttl: min(v4.ttl, v6.ttl)}
	case len(addrs) > 0:
		return result{addrs: addrs, ttl: max(v4.ttl, v6.ttl)} // a failed one has no time
	case errors.Is(errs, ErrNoName):
		return result{err: ErrNoName}
	case errors.Is(v4.err, ErrUnavailable):
		return result{err: v4.err}
	case errors.Is(v6.err, ErrUnavailable):
		return result{err: v6.err}
	}
	return result{err: ErrNoAddr}
}

// cache holds results by name. Failures are kept too, for the least time, so that a chat which
// repeats a query does not make the host do so (RFC 9520).
type cache map[string]result

func (c cache) get(name string, now time.Time) (result, bool) {
	r, ok := c[name]
	return r, ok && now.Before(r.until)
}

// put keeps a result. If the cache is full, it removes the expired ones, or else any one.
func (c cache) put(name string, r result, now time.Time) {
	var other string
	if _, there := c[name]; !there && len(c) >= maxCached {
		for n, old := range c {
			if other = n; !now.Before(old.until) {
				delete(c, n)
			}
		}
	}
	if len(c) >= maxCached {
		delete(c, other)
	}
	r.until = now.Add(max(r.ttl, minTTL))
	c[name] = r
}
