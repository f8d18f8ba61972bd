package resolver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const host = "api.example.com"

func TestClientAddrs(t *testing.T) {
	var many, chain = []string{}, zone{}
	for i := range 40 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("2001:db8::%x", i+1))
		chain[fmt.Sprintf("n%d", i)] = []string{fmt.Sprintf("-> n%d", i+1)}
	}
	chain["n40"] = []string{"192.0.2.1"}
	tests := map[string]struct {
		zone zone
		host string
		want []netip.Addr
		err  error
	}{
		"both families": {zone{host: {"192.0.2.1", "2001:db8::1", "192.0.2.2"}}, host,
			addrs("192.0.2.1", "192.0.2.2", "2001:db8::1"), nil},
		"only v4":    {zone{host: {"192.0.2.1"}}, host, addrs("192.0.2.1"), nil},
		"only v6":    {zone{host: {"2001:db8::1"}}, host, addrs("2001:db8::1"), nil},
		"case, dot":  {zone{host: {"192.0.2.1"}}, "API.example.com.", addrs("192.0.2.1"), nil},
		"no name":    {zone{}, host, nil, ErrNoName},
		"no address": {zone{host: {}}, host, nil, ErrNoAddr},
		"mapped":     {zone{host: {"::ffff:192.0.2.1"}}, host, nil, ErrNoAddr},
		"alias": {zone{host: {"-> b.net"}, "b.net": {"192.0.2.1"}}, host,
			addrs("192.0.2.1"), nil},
		"alias loop": {zone{host: {"-> b.net"}, "b.net": {"-> " + host}}, host,
			nil, ErrUnavailable},
		"own alias":   {zone{host: {"-> " + host}}, host, nil, ErrUnavailable},
		"broken":      {zone{host: {"-> b.net"}}, host, nil, ErrNoName},
		"no end":      {zone{host: {"-> b.net"}, "b.net": {}}, host, nil, ErrNoAddr},
		"long alias":  {chain, "n24", addrs("192.0.2.1"), nil},
		"too long":    {chain, "n23", nil, ErrUnavailable},
		"too many":    {zone{host: many}, host, nil, nil},
		"not a name":  {zone{}, "a b", nil, errors.ErrUnsupported},
		"not a name2": {zone{}, "192.0.2.1", nil, errors.ErrUnsupported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := &upstream{t: t, say: test.zone.say}
			got, err := u.client(1).Addrs(t.Context(), test.host)
			switch {
			case test.err == errors.ErrUnsupported && err != nil: // any error
			case !errors.Is(err, test.err):
				t.Errorf("the error is %v, want %v", err, test.err)
			case name == "too many" && len(got) != 2*maxFamilyAddrs:
				t.Errorf("%d addresses, want %d", len(got), 2*maxFamilyAddrs)
			case name != "too many" && !slices.Equal(got, test.want):
				t.Errorf("the addresses are %v, want %v", got, test.want)
			}
		})
	}
}

// A server that leaves the end of the chain to the client is asked for it.
func TestClientChases(t *testing.T) {
	chain := zone{}
	for i := range 40 {
		chain[fmt.Sprintf("n%d", i)] = []string{fmt.Sprintf("-> N%d", i+1)}
	}
	chain["n40"] = []string{"192.0.2.1", "2001:db8::1"}
	one := func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
		m := chain.say(q, server, udp)
		m[0].Answers = m[0].Answers[:min(1, len(m[0].Answers))]
		return m
	}
	u := &upstream{t: t, say: one}
	got, err := u.client(1).Addrs(t.Context(), "n33")
	want := addrs("192.0.2.1", "2001:db8::1")
	expect.True(t, err == nil && slices.Equal(got, want), "8 queries find %v, %v, want %v", got, err, want)
	u = &upstream{t: t, say: one}
	got, err = u.client(1).Addrs(t.Context(), "n32")
	expect.True(t, errors.Is(err, ErrUnavailable), "9 queries find %v, %v, want ErrUnavailable", got, err)
	n := len(u.queries())
	expect.True(t, n == 2*maxChase, "%d queries, want %d", n, 2*maxChase)
}

// What somebody else could have sent is passed over, and the right answer that follows is used.
func TestClientForged(t *testing.T) {
	evil := "198.51.100.66"
	forge := map[string]func(m *dnsmessage.Message){
		"ID":         func(m *dnsmessage.Message) { m.ID++ },
		"no answer":  func(m *dnsmessage.Message) { m.Response = false },
		"opcode":     func(m *dnsmessage.Message) { m.OpCode = 4 },
		"name":       func(m *dnsmessage.Message) { m.Questions = question("b."+host, typeA) },
		"type":       func(m *dnsmessage.Message) { m.Questions[0].Type = typeTXT },
		"class":      func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS },
		"none":       func(m *dnsmessage.Message) { m.Questions = nil },
		"two":        func(m *dnsmessage.Message) { m.Questions = slices.Repeat(m.Questions, 2) },
		"other case": nil,
	}
	for name, change := range forge {
		t.Run(name, func(t *testing.T) {
			u := &upstream{t: t}
			u.say = func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
				good := says(q, 0, rr(host, 60, "192.0.2.1"))
				if change == nil { // is an answer: RFC 4343
					good.Questions = question(strings.ToUpper(host), q.Questions[0].Type)
					return []dnsmessage.Message{good}
				}
				forged := says(q, 0, rr(host, 60, evil))
				forged.Questions = slices.Clone(forged.Questions)
				change(&forged)
				return []dnsmessage.Message{forged, good}
			}
			got, err := u.client(1).Addrs(t.Context(), host)
			expect.True(t, err == nil && slices.Equal(got, addrs("192.0.2.1")), "found %v, %v", got, err)
		})
	}
}

// Records of names that were not asked for are not used, whatever else the answer has.
func TestClientOtherOwners(t *testing.T) {
	evil := "198.51.100.66"
	chaos := rr(host, 60, evil)
	chaos.Header.Class = dnsmessage.ClassCHAOS
	for name, records := range map[string][]dnsmessage.Resource{
		"address":  {rr("b.example.com", 60, evil)},
		"alias to": {rr("b.example.com", 60, "-> "+host), rr("b.example.com", 60, evil)},
		"below":    {rr("x."+host, 60, evil)},
		"class":    {chaos},
	} {
		say := func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
			return []dnsmessage.Message{says(q, 0, records...)}
		}
		got, err := (&upstream{t: t, say: say}).client(1).Addrs(t.Context(), host)
		expect.True(t, errors.Is(err, ErrNoAddr), "%s: found %v, %v, want ErrNoAddr", name, got, err)
	}
	say := func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
		return []dnsmessage.Message{says(q, 0, rr("b.net", 60, evil), rr(host, 60, "192.0.2.1"))}
	}
	got, err := (&upstream{t: t, say: say}).client(1).Addrs(t.Context(), host)
	expect.True(t, err == nil && slices.Equal(got, addrs("192.0.2.1")),
		"beside another: found %v, %v", got, err)
}

// silent is a server that does not answer.
func silent(dnsmessage.Message, int, bool) []dnsmessage.Message { return nil }

func code(c dnsmessage.RCode) func(q dnsmessage.Message) []dnsmessage.Message {
	return func(q dnsmessage.Message) []dnsmessage.Message {
		return []dnsmessage.Message{says(q, c)}
	}
}

// A server that cannot answer is passed over; one that knows that there is no name is not.
func TestClientServers(t *testing.T) {
	lame := func(q dnsmessage.Message) []dnsmessage.Message {
		m := says(q, 0)
		m.RecursionAvailable = false
		return []dnsmessage.Message{m}
	}
	cut := func(q dnsmessage.Message) []dnsmessage.Message {
		m := says(q, 0, rr(host, 60, "198.51.100.66"))
		m.Answers[0].Body = &dnsmessage.UnknownResource{Type: q.Questions[0].Type, Data: []byte{1}}
		return []dnsmessage.Message{m}
	}
	tests := map[string]struct {
		first func(q dnsmessage.Message) []dnsmessage.Message
		want  error // of both
		alone error // of the first one only
	}{
		"silent":   {nil, nil, ErrUnavailable},
		"SERVFAIL": {code(dnsmessage.RCodeServerFailure), nil, ErrUnavailable},
		"REFUSED":  {code(dnsmessage.RCodeRefused), nil, ErrUnavailable},
		"FORMERR":  {code(dnsmessage.RCodeFormatError), nil, ErrUnavailable},
		"lame":     {lame, nil, ErrUnavailable},
		"cut":      {cut, nil, ErrUnavailable},
		"NXDOMAIN": {code(dnsmessage.RCodeNameError), ErrNoName, ErrNoName},
		"empty":    {code(dnsmessage.RCodeSuccess), ErrNoAddr, ErrNoAddr},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the waits are long
				u := &upstream{t: t}
				u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
					if server == 0 && test.first == nil {
						return nil
					}
					if server == 0 {
						return test.first(q)
					}
					return zone{host: {"192.0.2.1"}}.say(q, server, udp)
				}
				expect.Is(t, expect.Err(u.client(2).Addrs(t.Context(), host)), test.want, "two servers")
				expect.Is(t, expect.Err(u.client(1).Addrs(t.Context(), host)), test.alone, "one server")
				synctest.Wait()
				expect.True(t, u.open == 0, "%d connections are open", u.open)
			})
		})
	}
	c := NewClient(2, func(context.Context, int, bool) (net.Conn, error) {
		return nil, errors.New("no socket")
	})
	_, err := c.Addrs(t.Context(), host)
	expect.True(t, errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "no socket"),
		"no connection: %v, want ErrUnavailable", err)
	none := (&upstream{t: t}).client(0)
	expect.Is(t, expect.Err(none.Addrs(t.Context(), host)), ErrUnavailable, "no server")
}

// The second round is without EDNS: some servers do not know it.
func TestClientWithoutEDNS(t *testing.T) {
	u := &upstream{t: t}
	u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
		if len(q.Additionals) > 0 {
			return code(dnsmessage.RCodeFormatError)(q)
		}
		return zone{host: {"192.0.2.1"}}.say(q, server, udp)
	}
	got, err := u.client(2).Addrs(t.Context(), host)
	expect.True(t, err == nil && slices.Equal(got, addrs("192.0.2.1")), "found %v, %v", got, err)
	for _, a := range u.queries()[:2] {
		expect.True(t, a.edns, "the first queries have no EDNS")
	}
}

// If one family cannot be asked for, the other is enough, but is asked for again soon.
func TestClientOneFamily(t *testing.T) {
	for _, broken := range []dnsmessage.Type{typeA, typeAAAA} {
		synctest.Test(t, func(t *testing.T) {
			u := &upstream{t: t}
			u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
				if q.Questions[0].Type == broken {
					return nil
				}
				return zone{host: {"192.0.2.1", "2001:db8::1"}}.say(q, server, udp)
			}
			c := u.client(1)
			got, err := c.Addrs(t.Context(), host)
			expect.True(t, err == nil && len(got) == 1 && got[0].Is4() != (broken == typeA),
				"found %v, %v without the %s", got, err, broken)
			before := len(u.queries())
			time.Sleep(minTTL)
			if _, err := c.Addrs(t.Context(), host); err != nil || len(u.queries()) == before {
				t.Errorf("the result is kept for more than %s, %v", minTTL, err)
			}
		})
	}
}

func TestClientTCP(t *testing.T) {
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i))
	}
	u := &upstream{t: t}
	u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
		if udp {
			m := says(q, 0, rr(host, 60, "198.51.100.66")) // what there is of it is not used
			m.Truncated = true
			return []dnsmessage.Message{m}
		}
		return zone{host: many}.say(q, server, udp)
	}
	got, err := u.client(1).Addrs(t.Context(), host)
	expect.True(t, err == nil && len(got) == maxFamilyAddrs && got[0] == netip.MustParseAddr("192.0.2.0"),
		"found %v, %v", got, err)
	u.say = func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
		m := says(q, 0)
		m.Truncated = true
		return []dnsmessage.Message{m}
	}
	expect.Is(t, expect.Err(u.client(1).Addrs(t.Context(), host)), ErrUnavailable,
		"truncated by TCP too")
}

// An answer is kept as long as the least TTL on its way says, within bounds.
func TestClientCache(t *testing.T) {
	type rrs = []dnsmessage.Resource
	least := rrs{rr(host, 60, "192.0.2.1"), rr(host, 30, "192.0.2.2"), rr(host, 90, "192.0.2.3")}
	both := rrs{rr(host, 60, "192.0.2.1"), rr(host, 30, "2001:db8::1")}
	tests := map[string]struct {
		records rrs
		want    time.Duration
	}{
		"least":    {least, 30 * time.Second},
		"families": {both, 30 * time.Second},
		"two answers": {
			rrs{rr(host, 30, "-> split.net"), rr("split.net", 60, "192.0.2.1")}, 30 * time.Second,
		},
		"short": {rrs{rr(host, 0, "192.0.2.1")}, minTTL},
		"TTL":   {rrs{rr(host, 60, "192.0.2.1")}, time.Minute},
		"long":  {rrs{rr(host, 86400, "192.0.2.1")}, maxTTL},
		"alias": {
			rrs{rr(host, 30, "-> b.net"), rr("b.net", 60, "192.0.2.1")}, 30 * time.Second,
		},
		"of alias": {
			rrs{rr(host, 60, "-> b.net"), rr("b.net", 30, "192.0.2.1")}, 30 * time.Second,
		},
		"no answer": {nil, minTTL},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{t: t}
				u.say = func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
					return []dnsmessage.Message{says(q, 0, of(q.Questions[0], test.records)...)}
				}
				c := u.client(1)
				ask := func() int {
					if _, err := c.Addrs(t.Context(), host); err != nil && test.records != nil {
						t.Error(err)
					}
					return len(u.queries())
				}
				first := ask()
				time.Sleep(test.want - time.Nanosecond)
				n := ask()
				expect.True(t, n == first, "%d queries within %s, want %d", n, test.want, first)
				time.Sleep(time.Nanosecond)
				expect.True(t, ask() != first, "it is kept for more than %s", test.want)
			})
		})
	}
}

// of returns the records that are an answer. The name split.net is in no answer but its own.
func of(q dnsmessage.Question, records []dnsmessage.Resource) []dnsmessage.Resource {
	return slices.DeleteFunc(slices.Clone(records), func(r dnsmessage.Resource) bool {
		other := r.Header.Type != q.Type && r.Header.Type != dnsmessage.TypeCNAME
		return other || r.Header.Name.String() == "split.net." && q.Name != r.Header.Name
	})
}

func TestCacheBound(t *testing.T) {
	now := time.Unix(1000, 0)
	c := cache{}
	for i := range 2 * maxCached {
		c.put(fmt.Sprint(i), result{ttl: time.Minute}, now)
		_, ok := c.get(fmt.Sprint(i), now)
		must.True(t, ok && len(c) <= maxCached, "name %d is kept: %v, of %d", i, ok, len(c))
	}
	c.put("new", result{}, now.Add(time.Hour))
	expect.True(t, len(c) == 1, "%d names are kept after their time", len(c))
	for i := range maxCached {
		c.put(fmt.Sprint(i%10), result{ttl: time.Minute}, now)
	}
	expect.True(t, len(c) == 11, "%d names are kept, want 11", len(c))
}

// A caller cannot change what the next one gets.
func TestClientCopies(t *testing.T) {
	c := (&upstream{t: t, say: zone{host: {"192.0.2.1"}}.say}).client(1)
	for range 2 {
		got, err := c.Addrs(t.Context(), host)
		must.True(t, err == nil && slices.Equal(got, addrs("192.0.2.1")), "found %v, %v", got, err)
		got[0] = netip.IPv6Loopback()
	}
}

// Simultaneous callers share one lookup. It goes on until the last one gives up.
func TestClientShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		u := &upstream{t: t}
		u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
			select {
			case <-ready:
			case <-time.After(tryTimeout):
			}
			return zone{host: {"192.0.2.1"}}.say(q, server, udp)
		}
		c := u.client(1)
		first, giveUp := context.WithCancel(t.Context())
		errs := make(chan error, 10)
		ask := func(ctx context.Context) {
			_, err := c.Addrs(ctx, host)
			errs <- err
		}
		go ask(first)
		synctest.Wait()
		for range 9 {
			go ask(t.Context())
		}
		synctest.Wait()
		giveUp()
		expect.Is(t, <-errs, context.Canceled, "who gave up has")
		close(ready)
		for range 9 {
			expect.NoError(t, <-errs)
		}
		n := len(u.queries())
		expect.True(t, n == 2, "%d queries, want 2", n)
	})
}

// A lookup that nobody waits for ends, and is not what the next caller gets.
func TestClientCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{t: t}
		u.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
			if len(u.queries()) <= 2 {
				return nil
			}
			return zone{host: {"192.0.2.1"}}.say(q, server, udp)
		}
		c := u.client(1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		expect.Is(t, expect.Err(c.Addrs(ctx, host)), context.Canceled, "the error")
		synctest.Wait()
		got, err := c.Addrs(t.Context(), host)
		expect.True(t, err == nil && slices.Equal(got, addrs("192.0.2.1")),
			"then: found %v, %v", got, err)
		synctest.Wait()
		expect.True(t, len(c.flights) == 0 && u.open == 0,
			"%d lookups and %d connections are left", len(c.flights), u.open)
	})
}

func TestClientBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{t: t, say: silent}
		c := u.client(1)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range maxLookups + 10 {
			go func() { _, _ = c.Addrs(ctx, fmt.Sprintf("n%d.example.com", i)) }()
		}
		synctest.Wait()
		n := len(u.queries())
		expect.True(t, n == 2*maxLookups, "%d simultaneous queries, want %d", n, 2*maxLookups)
		cancel()
		synctest.Wait()
		expect.True(t, len(c.flights) == 0 && len(c.slots) == 0 && u.open == 0,
			"%d lookups and %d connections are left", len(c.flights), u.open)
	})
}

// The whole lookup has a bound, whatever servers do.
func TestClientTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{t: t, say: silent}
		begin := time.Now()
		_, err := u.client(50).Addrs(t.Context(), host)
		if took := time.Since(begin); !errors.Is(err, ErrUnavailable) || took != lookupTimeout {
			t.Errorf("it ends with %v after %s of the bubble's time", err, took)
		}
	})
}

// TestClientSockets asks a server on the loopback, by UDP and then by TCP.
func TestClientSockets(t *testing.T) {
	udp := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		t.Skipf("SKIP: needs one port for both: %v", err)
	}
	server := &Responder{
		Lists: func(string) bool { return true }, Book: newBook(t),
		Client: (&upstream{t: t, say: zone{host: {"192.0.2.1"}}.say}).client(1),
	}
	go func() { // by UDP it says only that the answer is longer
		buf := make([]byte, maxQuery)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			answer := server.Answer(t.Context(), buf[:n])
			answer[2] |= 2 // TC
			_, _ = udp.WriteTo(answer, from)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { _ = server.ServeTCP(t.Context(), c) }()
		}
	}()
	defer func() { _, _ = udp.Close(), tcp.Close() }()
	dial := func(ctx context.Context, _ int, isUDP bool) (net.Conn, error) {
		if isUDP {
			return new(net.Dialer).DialContext(ctx, "udp", udp.LocalAddr().String())
		}
		return new(net.Dialer).DialContext(ctx, "tcp", tcp.Addr().String())
	}
	got, err := NewClient(1, dial).Addrs(t.Context(), host)
	want := addrs("198.18.1.0", "fd63:6861:7464::100")
	expect.True(t, err == nil && slices.Equal(got, want), "found %v, %v, want %v", got, err, want)
}

func question(name string, kind dnsmessage.Type) []dnsmessage.Question {
	n := dnsmessage.MustNewName(name + ".")
	return []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}
}

// FuzzReadAnswer reads what a server sends: nothing but addresses of the name comes of it.
func FuzzReadAnswer(f *testing.F) {
	x := exchange{id: 1, question: question(host, typeA)[0]}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: question(host, typeA)}
	for _, m := range []dnsmessage.Message{
		says(q, 0, rr(host, 60, "192.0.2.1")),
		says(q, 0, rr(host, 60, "-> b.net"), rr("b.net", 60, "192.0.2.1")),
		says(q, 0, rr(host, 60, "-> "+host)),
		says(q, dnsmessage.RCodeNameError),
	} {
		packed := must.Get(m.Pack())(f)
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := x.read(msg)
		if err != nil {
			return
		}
		end, _, err := a.follow(x.question.Name)
		n := len(a.addrs[fold(end)])
		expect.True(t, err != nil || n <= maxFamilyAddrs, "%d addresses", n)
	})
}
