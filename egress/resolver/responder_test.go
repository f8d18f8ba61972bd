package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const (
	typeTXT  = dnsmessage.TypeTXT
	noName   = dnsmessage.RCodeNameError
	refused  = dnsmessage.RCodeRefused
	servFail = dnsmessage.RCodeServerFailure
	formErr  = dnsmessage.RCodeFormatError
	notImp   = dnsmessage.RCodeNotImplemented
)

// real is what the host's DNS servers know.
var real = zone{
	"api.example.com":    {"192.0.2.1"},
	"v6.example.net":     {"2001:db8::1"},
	"inner.example.net":  {"10.0.0.1"},
	"empty.example.net":  {},
	"a.wild.example.org": {"192.0.2.2"},
	"wild.example.org":   {"192.0.2.3"},
	"notapi.example.com": {"192.0.2.4"},
}

// lists is a chat's list.
func lists(t testing.TB) func(host string) bool {
	var list []chat.Allow
	for _, text := range []string{"api.example.com:443", "v6.example.net:22", "inner.example.net:1",
		"empty.example.net:1", "gone.example.net:1", "down.example.net:1",
		"*.wild.example.org:443"} {
		a := must.Get(chat.ParseAllow(text))(t)
		list = append(list, a)
	}
	return func(host string) bool {
		return slices.ContainsFunc(list, func(a chat.Allow) bool { return a.MatchesHost(host) })
	}
}

// fixture is a Responder with what is around it.
type fixture struct {
	*Responder
	up   *upstream
	book *Book

	mu   sync.Mutex
	told map[string]error
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	b := newBook(t)
	f := &fixture{book: b, told: map[string]error{}}
	f.up = &upstream{t: t}
	f.up.say = func(q dnsmessage.Message, server int, udp bool) []dnsmessage.Message {
		if strings.HasPrefix(q.Questions[0].Name.String(), "down.") {
			return code(servFail)(q)
		}
		return real.say(q, server, udp)
	}
	f.Responder = &Responder{Lists: lists(t), Book: b, Client: f.up.client(1), Asked: f.asked}
	return f
}

func (f *fixture) asked(host string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told[host] = why
}

// ask sends a query, and checks what holds for every answer.
func (f *fixture) ask(t testing.TB, q dnsmessage.Message) dnsmessage.Message {
	t.Helper()
	packed := pack(t, q)
	m := unpack(t, f.Answer(t.Context(), packed))
	want := q.Header
	want.Response, want.RecursionAvailable, want.RCode = true, true, m.RCode
	expect.Equal(t, m.Header, want, "the header")
	return m
}

func query1(name string, kind dnsmessage.Type) dnsmessage.Message {
	return dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0xbeef, RecursionDesired: true},
		Questions: question(name, kind),
	}
}

func pack(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	packed := must.Get(m.Pack())(t)
	return packed
}

func unpack(t testing.TB, packed []byte) (m dnsmessage.Message) {
	t.Helper()
	err := m.Unpack(packed)
	must.True(t, err == nil, "the answer %x: %v", packed, err)
	return m
}

// value is what an answer says: its address or name, or empty.
func value(m dnsmessage.Message) string {
	if len(m.Answers) == 0 {
		return ""
	}
	switch body := m.Answers[0].Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(body.A).String()
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(body.AAAA).String()
	case *dnsmessage.PTRResource:
		return body.PTR.String()
	}
	return "?"
}

// answerTest is a query and its answer; asks is whether the host's DNS servers are asked.
type answerTest struct {
	name  string
	kind  dnsmessage.Type
	code  dnsmessage.RCode
	value string
	asks  bool
}

func TestAnswer(t *testing.T) {
	const v4, v6 = "198.18.1.0", "fd63:6861:7464::100" // of the first name
	for _, test := range []answerTest{
		{"api.example.com", typeA, 0, v4, true},
		{"api.example.com", typeAAAA, 0, v6, true}, // it has IPv4 only
		{"v6.example.net", typeA, 0, v4, true},
		{"v6.example.net", typeAAAA, 0, v6, true},
		{"inner.example.net", typeA, 0, v4, true},
		{"API.eXample.COM", typeA, 0, v4, true},
		{"a.wild.example.org", typeA, 0, v4, true},
		{"empty.example.net", typeA, 0, "", true},
		{"gone.example.net", typeA, noName, "", true},
		{"down.example.net", typeA, servFail, "", true},
		{"b.wild.example.org", typeA, noName, "", true},

		{"wild.example.org", typeA, noName, "", false},
		{"notwild.example.org", typeA, noName, "", false},
		{"notapi.example.com", typeA, noName, "", false},
		{"api.example.com.evil.test", typeA, noName, "", false},
		{"x.api.example.com", typeA, noName, "", false},
		{"example.com", typeA, noName, "", false},
		{"c2VjcmV0.evil.test", typeA, noName, "", false},
		{"c2VjcmV0.evil.test", typeTXT, noName, "", false},
		{"c2VjcmV0.evil.test", typeHTTPS, noName, "", false},
		{"evil.test", dnsmessage.TypeNS, noName, "", false},
		{"a b.wild.example.org", typeA, noName, "", false},
		{"-.wild.example.org", typeA, noName, "", false},
		{"\x00.wild.example.org", typeA, noName, "", false},
		{"ap\u0130.example.com", typeA, noName, "", false},
		{"\u212a.wild.example.org", typeA, noName, "", false}, // lower case of K, the unit, is k
		{"192.0.2.1", typeA, noName, "", false},
		{"", typeA, noName, "", false},
		{"", dnsmessage.TypeNS, noName, "", false},

		{"api.example.com", typeHTTPS, 0, "", false},
		{"api.example.com", typeSVCB, 0, "", false},
		{"api.example.com", typeTXT, refused, "", false},
		{"api.example.com", dnsmessage.TypeMX, refused, "", false},
		{"api.example.com", dnsmessage.TypeSRV, refused, "", false},
		{"api.example.com", dnsmessage.TypeNS, refused, "", false},
		{"api.example.com", dnsmessage.TypeSOA, refused, "", false},
		{"api.example.com", dnsmessage.TypeCNAME, refused, "", false},
		{"api.example.com", dnsmessage.TypePTR, refused, "", false},
		{"api.example.com", dnsmessage.TypeAXFR, refused, "", false},
		{"api.example.com", dnsmessage.TypeALL, refused, "", false},
		{"a.wild.example.org", typeTXT, refused, "", false},

		{"localhost", typeA, 0, "127.0.0.1", false},
		{"LocalHost", typeAAAA, 0, "::1", false},
		{"db.localhost", typeA, 0, "127.0.0.1", false},
		{"localhost", dnsmessage.TypeMX, 0, "", false},
		{"notlocalhost", typeA, noName, "", false},
		{"localhost.evil.test", typeA, noName, "", false},
	} {
		t.Run(fmt.Sprintf("%s %s", test.name, test.kind), test.run)
	}
}

func (test answerTest) run(t *testing.T) {
	f := newFixture(t)
	q := query1(test.name, test.kind)
	m := f.ask(t, q)
	if m.RCode != test.code || value(m) != test.value || len(m.Answers) > 1 {
		t.Errorf("it is %s %q, want %s %q", m.RCode, value(m), test.code, test.value)
	}
	expect.True(t, len(m.Questions) == 1 && m.Questions[0] == q.Questions[0],
		"the question is %+v, want it as asked", m.Questions)
	for _, a := range m.Answers {
		expect.True(t, a.Header.Name == q.Questions[0].Name && a.Header.TTL == answerTTL,
			"the record is of %v", a.Header)
	}
	up := f.up.queries()
	expect.True(t, len(up) > 0 == test.asks, "the host's servers were asked %v", up)
	tells := test.code != 0 || test.name == "empty.example.net"
	told := len(f.told) > 0
	expect.True(t, told == tells, "told %v", f.told)
}

// Asked hears why, of a name that it may print.
func TestAnswerAsked(t *testing.T) {
	f := newFixture(t)
	for name, kind := range map[string]dnsmessage.Type{
		"Evil.test": typeA, "gone.example.net": typeA, "empty.example.net": typeAAAA,
		"down.example.net": typeA, "api.example.com": typeTXT, "\x1b[2J.evil.test": typeA,
	} {
		f.ask(t, query1(name, kind))
	}
	want := map[string]error{
		"evil.test": ErrNotListed, "gone.example.net": ErrNoName, "empty.example.net": ErrNoAddr,
		"down.example.net": ErrUnavailable, "api.example.com": ErrType,
	}
	for name, why := range want {
		if !errors.Is(f.told[name], why) {
			t.Errorf("%s: told %v, want %v", name, f.told[name], why)
		}
	}
	if quoted := `"\x1b[2J.evil.test."`; f.told[quoted] == nil || len(f.told) != len(want)+1 {
		t.Errorf("told %v, want %s too", f.told, quoted)
	}
}

// The list may change, and a name keeps its address meanwhile.
func TestAnswerListChanges(t *testing.T) {
	f := newFixture(t)
	listed := true
	f.Lists = func(string) bool { return listed }
	reverse := query1("0.1.18.198.in-addr.arpa", dnsmessage.TypePTR)
	for range 3 {
		listed = true
		if m := f.ask(t, query1(host, typeA)); value(m) != "198.18.1.0" {
			t.Errorf("listed: %s %q", m.RCode, value(m))
		}
		if m := f.ask(t, reverse); value(m) != host+"." {
			t.Errorf("listed: its address is of %s %q", m.RCode, value(m))
		}
		listed = false
		for _, q := range []dnsmessage.Message{query1(host, typeA), reverse} {
			if m := f.ask(t, q); m.RCode != noName || len(m.Answers) > 0 {
				t.Errorf("not listed: %s %q", m.RCode, value(m))
			}
		}
	}
}

func TestAnswerReverse(t *testing.T) {
	f := newFixture(t)
	f.ask(t, query1(host, typeA))
	v6 := strings.Repeat("0.", 16) + "0.0.0.0.4.6.4.7.1.6.8.6.3.6.d.F.IP6.arpa"
	for name, want := range map[string]string{
		"0.1.18.198.in-addr.arpa": host + ".",
		"0.0.1." + v6[6:]:         host + ".",
		"1.1.18.198.in-addr.arpa": "",
		"1.18.198.in-addr.arpa":   "",
		"1.2.0.192.in-addr.arpa":  "",
		"0.1." + v6[4:]:           "",
		"00.1." + v6[6:]:          "",
		v6[2:]:                    "",
		"ip6.arpa":                "",
		"in-addr.arpa":            "",
		"x.in-addr.arpa":          "",
		"0.1.18.198.ip6.arpa":     "",
	} {
		m := f.ask(t, query1(name, dnsmessage.TypePTR))
		if value(m) != want || (m.RCode == noName) != (want == "") {
			t.Errorf("%s is %s %q, want %q", name, m.RCode, value(m), want)
		}
	}
	if m := f.ask(t, query1("0.1.18.198.in-addr.arpa", typeA)); m.RCode != noName {
		t.Errorf("a reverse name has the address %s %q", m.RCode, value(m))
	}
}

func TestAnswerFull(t *testing.T) {
	f := newFixture(t)
	for i := range maxNames {
		f.book.insert(fmt.Sprintf("n%d.example.com", i))
	}
	m := f.ask(t, query1(host, typeA))
	expect.True(t, m.RCode == servFail && errors.Is(f.told[host], ErrFull),
		"the answer is %s, told %v", m.RCode, f.told)
}

// A name that has no address takes none of the book's.
func TestAnswerKeepsRoom(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"b.wild.example.org", "empty.example.net", "down.example.net"} {
		f.ask(t, query1(name, typeA))
	}
	f.ask(t, query1(host, typeHTTPS))
	expect.True(t, len(f.book.names) <= 0, "the book has %q", f.book.names)
}

// A query of another kind gets a code, never an address.
func TestAnswerForm(t *testing.T) {
	type message = dnsmessage.Message
	tests := map[string]struct {
		change func(q *message)
		want   dnsmessage.RCode
	}{
		"none":   {func(q *message) { q.Questions = nil }, formErr},
		"two":    {func(q *message) { q.Questions = slices.Repeat(q.Questions, 2) }, formErr},
		"opcode": {func(q *message) { q.OpCode = 5 }, notImp},
		"class":  {func(q *message) { q.Questions[0].Class = dnsmessage.ClassCHAOS }, notImp},
		"any":    {func(q *message) { q.Questions[0].Class = dnsmessage.ClassANY }, notImp},
		"version": {func(q *message) {
			withEDNS(q)
			q.Additionals[0].Header.TTL = 1 << 16
		}, badVersion},
		"OPT": {func(q *message) { withEDNS(q); withEDNS(q) }, formErr},
		"owner": {func(q *message) {
			withEDNS(q)
			q.Additionals[0].Header.Name = q.Questions[0].Name
		}, formErr},
	}
	for name, test := range tests {
		f, q := newFixture(t), query1(host, typeA)
		test.change(&q)
		m := f.ask(t, q)
		code := m.RCode
		if len(m.Additionals) > 0 {
			code = m.Additionals[0].Header.ExtendedRCode(m.RCode)
		}
		if code != test.want || len(m.Answers) > 0 || len(f.up.queries()) > 0 {
			t.Errorf("%s: %s %q, want %s", name, code, value(m), test.want)
		}
	}
}

func withEDNS(q *dnsmessage.Message) {
	q.Additionals = append(q.Additionals, edns(0, true)...)
}

func TestAnswerEDNS(t *testing.T) {
	f, q := newFixture(t), query1(host, typeA)
	if m := f.ask(t, q); len(m.Additionals) > 0 {
		t.Errorf("without EDNS: %v", m.Additionals)
	}
	withEDNS(&q)
	other := rr("x.example.com", 1, "192.0.2.1")
	q.Additionals = append(q.Additionals, other)
	m := f.ask(t, q)
	if len(m.Additionals) != 1 || value(m) != "198.18.1.0" {
		t.Fatalf("with EDNS: %s %q, %v", m.RCode, value(m), m.Additionals)
	}
	opt := m.Additionals[0].Header
	expect.True(t, opt.Type == dnsmessage.TypeOPT && opt.Class == payloadSize && opt.DNSSECAllowed(),
		"the OPT record is %v", opt)
}

// A negative answer says how long it may be kept, so that programs do not keep it for long.
func TestAnswerNegative(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"evil.test", "empty.example.net"} {
		m := f.ask(t, query1(name, typeA))
		must.True(t, len(m.Authorities) == 1, "%s: %v", name, m.Authorities)
		soa, ok := m.Authorities[0].Body.(*dnsmessage.SOAResource)
		expect.True(t, ok && soa.MinTTL == negativeTTL && m.Authorities[0].Header.TTL == negativeTTL,
			"%s: %v", name, m.Authorities)
	}
}

func TestAnswerDrops(t *testing.T) {
	response := query1(host, typeA)
	response.Response = true
	for _, msg := range [][]byte{nil, {1}, {1, 2}, make([]byte, 11), pack(t, response)} {
		got := newFixture(t).Answer(t.Context(), msg)
		expect.True(t, got == nil, "%x is answered: %x", msg, got)
	}
	packed := pack(t, query1(host, typeA))
	for n := 12; n < len(packed); n++ {
		m := unpack(t, newFixture(t).Answer(t.Context(), packed[:n]))
		expect.True(t, m.RCode == formErr && len(m.Answers) == 0, "%d bytes of a query: %s", n, m.RCode)
	}
}

// TestAnswerMany: 200 names at once, of which each is asked for both families, are all answered:
// those that are beyond the rate later, and before a program gives up. A name that was found costs
// nothing of the rate.
func TestAnswerMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Lists = func(string) bool { return true }
		f.up.say = func(q dnsmessage.Message, _ int, _ bool) []dnsmessage.Message {
			name := strings.TrimSuffix(q.Questions[0].Name.String(), ".")
			return []dnsmessage.Message{says(q, 0, rr(name, 60, "192.0.2.1"))}
		}
		var all sync.WaitGroup
		for i := range 200 {
			for _, kind := range []dnsmessage.Type{typeA, typeAAAA} {
				all.Go(func() {
					m := f.ask(t, query1(fmt.Sprintf("n%d.test", i), kind))
					expect.True(t, len(m.Answers) == 1, "name %d, %s: %s, %v", i, kind, m.RCode, m.Answers)
				})
			}
		}
		begun := time.Now()
		all.Wait()
		took, want := time.Since(begun), (200-burst)*lookupEvery
		expect.True(t, took == want, "all are answered after %s, want %s", took, want)
		for i := range 10 * burst {
			all.Go(func() { f.ask(t, query1(fmt.Sprintf("n%d.test", i%200), typeA)) })
		}
		all.Wait()
		expect.Equal(t, time.Since(begun), (200-burst)*lookupEvery, "what was found is answered … later")
	})
}

// TestAnswerBusy: a name whose turn does not come fails, and may be looked up again immediately.
func TestAnswerBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Lists = func(string) bool { return true }
		f.up.say = silent
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 4 * maxLookups {
			go f.Answer(ctx, pack(t, query1(fmt.Sprintf("n%d.test", i), typeA)))
		}
		synctest.Wait()
		asked := time.Now()
		expect.Equal(t, f.ask(t, query1(host, typeA)).RCode, servFail, "one more is answered")
		if took := time.Since(asked); !errors.Is(f.told[host], ErrBusy) || took != turnTimeout {
			t.Errorf("told %v, after %s", f.told, took)
		}
		cancel()
		synctest.Wait()
		f.up.say = zone{host: {"192.0.2.1"}}.say
		if m := f.ask(t, query1(host, typeA)); value(m) != "198.18.1.0" {
			t.Errorf("then: %s %q", m.RCode, value(m))
		}
	})
}

// FuzzAnswer sends any bytes, and any name and type.
func FuzzAnswer(f *testing.F) {
	for _, q := range []dnsmessage.Message{
		query1(host, typeA), query1("A.wild.EXAMPLE.org", typeAAAA), query1("evil.test", typeA),
		query1("localhost", typeA), query1("0.1.18.198.in-addr.arpa", dnsmessage.TypePTR),
	} {
		f.Add(pack(f, q))
		withEDNS(&q)
		f.Add(pack(f, q))
	}
	const head = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	for _, text := range []string{
		head + "\xc0\x0c\x00\x01\x00\x01",         // a name that is itself
		head + "\xc0\x0e\xc0\x0c\x00\x01\x00\x01", // two that are each other
		"\x12\x34\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x12\x34\x01\x00\x00\x01\xff\xff\xff\xff\xff\xff\x00\x00\x01\x00\x01",
		head + "\x03\xe2\x84\xaa\x04wild\x07example\x03org\x00\x00\x01\x00\x01",
		head + strings.Repeat("\x3f"+strings.Repeat("b", 63), 4) + "\x00\x00\x01\x00\x01",
		head + "\x05a.api\x07example\x03com\x00\x00\x01\x00\x01", // a dot in a label
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		r := newFixture(t)
		answer := r.Answer(t.Context(), msg)
		for _, a := range r.up.queries() {
			expect.True(t, lists(t)(a.name), "the host's servers were asked for %q", a.name)
		}
		if answer != nil {
			checkAnswer(t, msg, answer)
		}
	})
}

// checkAnswer checks what holds for the answer to any bytes.
func checkAnswer(t *testing.T, msg, answer []byte) {
	m := unpack(t, answer)
	expect.True(t, len(answer) <= 512 && m.Response && !m.Truncated && string(answer[:2]) == string(msg[:2]),
		"the answer has %d bytes, and the header %+v", len(answer), m.Header)
	for _, r := range m.Answers {
		name := strings.ToLower(strings.TrimSuffix(m.Questions[0].Name.String(), "."))
		text := value(dnsmessage.Message{Answers: []dnsmessage.Resource{r}})
		addr, err := netip.ParseAddr(text)
		switch {
		case r.Header.Name != m.Questions[0].Name:
			t.Errorf("the answer is of %s", r.Header.Name)
		case name == "localhost" || strings.HasSuffix(name, ".localhost"):
			expect.True(t, addr.IsLoopback(), "%s is %s", name, text)
		case !lists(t)(name) || err != nil || !MadeUp(addr):
			t.Errorf("%q is %s", name, text)
		}
	}
}
