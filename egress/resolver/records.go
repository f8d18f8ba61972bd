package resolver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	typeA, typeAAAA = dnsmessage.TypeA, dnsmessage.TypeAAAA
	// maxFamilyAddrs is how many addresses of one family are kept.
	maxFamilyAddrs = 16
	// maxAliases is how many CNAME records of one answer are followed.
	maxAliases = 16
	// maxChase is how many queries one name and family may take.
	maxChase = 8
)

// answer is what a server said about one name and type.
type answer struct {
	code    dnsmessage.RCode
	addrs   map[string][]netip.Addr // by owner, in the form of fold
	aliases map[string]dnsmessage.Name
	ttls    map[string]uint32 // the least of an owner's records
}

// chase asks for the addresses of one family, and for the name that the answer ends at, as long as
// there is one: a server need not follow CNAME records to the end (RFC 1034, section 4.3.2).
func (c *Client) chase(ctx context.Context, host string, kind dnsmessage.Type) result {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return result{err: fmt.Errorf("%w: %w", ErrUnavailable, err)}
	}
	ttl := maxTTL
	for range maxChase {
		a, err := c.ask(ctx, name, kind)
		if err != nil {
			return result{err: err}
		}
		end, some, err := a.follow(name)
		if err != nil {
			return result{err: err}
		}
		ttl = min(ttl, some)
		switch addrs := a.addrs[fold(end)]; {
		case a.code == dnsmessage.RCodeNameError: // of the last alias: RFC 6604
			return result{err: ErrNoName}
		case len(addrs) > 0:
			return result{addrs: addrs, ttl: ttl}
		case end == name:
			return result{err: ErrNoAddr}
		}
		name = end
	}
	err = fmt.Errorf("%w: more than %d queries for one name", ErrUnavailable, maxChase)
	return result{err: err}
}

// follow goes from a name along the CNAME records of the answer. Records of names that are not on
// the way are not used: the server was not asked for them. ttl is the least on the way.
func (a answer) follow(name dnsmessage.Name) (end dnsmessage.Name, ttl time.Duration, err error) {
	ttl = maxTTL
	for range maxAliases + 1 {
		key := fold(name)
		if seconds, ok := a.ttls[key]; ok {
			ttl = min(ttl, time.Duration(seconds)*time.Second)
		}
		next, alias := a.aliases[key]
		if !alias || len(a.addrs[key]) > 0 {
			return name, ttl, nil
		}
		name = next
	}
	return name, 0, fmt.Errorf("%w: more than %d aliases in one answer", ErrUnavailable, maxAliases)
}

// readAnswer reads the records of the answer section that p is at: addresses of the kind, and
// aliases.
func readAnswer(p *dnsmessage.Parser, code dnsmessage.RCode, kind dnsmessage.Type) (answer, error) {
	a := answer{code, map[string][]netip.Addr{}, map[string]dnsmessage.Name{}, map[string]uint32{}}
	for {
		h, err := p.AnswerHeader()
		switch {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return a, nil
		case err != nil:
			return answer{}, err
		case h.Class != dnsmessage.ClassINET || h.Type != kind && h.Type != dnsmessage.TypeCNAME:
			err = p.SkipAnswer()
		default:
			err = a.read(p, h)
		}
		if err != nil {
			return answer{}, err
		}
	}
}

// read reads one record. Of several CNAME records of one owner, the first is used (there must not
// be a second: RFC 2181, section 10.1).
func (a answer) read(p *dnsmessage.Parser, h dnsmessage.ResourceHeader) error {
	key := fold(h.Name)
	if ttl, ok := a.ttls[key]; !ok || h.TTL < ttl {
		a.ttls[key] = h.TTL
	}
	if h.Type == dnsmessage.TypeCNAME {
		r, err := p.CNAMEResource()
		if _, twice := a.aliases[key]; !twice {
			a.aliases[key] = r.CNAME
		}
		return err
	}
	addr, err := readAddr(p, h.Type)
	// An IPv4 address written as IPv6 could pass a check that is made for IPv6.
	if err == nil && !addr.Is4In6() && len(a.addrs[key]) < maxFamilyAddrs {
		a.addrs[key] = append(a.addrs[key], addr)
	}
	return err
}

func readAddr(p *dnsmessage.Parser, kind dnsmessage.Type) (netip.Addr, error) {
	if kind == typeA {
		r, err := p.AResource()
		return netip.AddrFrom4(r.A), err
	}
	r, err := p.AAAAResource()
	return netip.AddrFrom16(r.AAAA), err
}

// fold returns a name with its ASCII letters in lower case, and no other byte changed (RFC 4343).
func fold(name dnsmessage.Name) string {
	var b strings.Builder
	for _, c := range name.Data[:name.Length] {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}
