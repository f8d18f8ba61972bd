package resolver

import (
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chatd/chatd/chat"
)

const (
	// payloadSize is the UDP payload that is offered to the other side: what fits into a packet of
	// IPv6's least MTU, so that no answer is fragmented (RFC 9715).
	payloadSize = 1232
	// answerTTL is how long programs keep a made-up address, in seconds. It stays the same for the
	// session, but the list may change.
	answerTTL = 60
	// negativeTTL is how long they keep it that there is none.
	negativeTTL = 5
	// badVersion is BADVERS of RFC 6891, section 9: 4 bits of it are in the OPT record.
	badVersion dnsmessage.RCode = 16
	// typeSVCB and typeHTTPS are types of RFC 9460, section 14.
	typeSVCB, typeHTTPS dnsmessage.Type = 64, 65
)

// query is what is needed of a query to answer it.
type query struct {
	header   dnsmessage.Header
	question *dnsmessage.Question // nil if it could not be read
	edns     *dnsmessage.ResourceHeader
}

// reply is the answer's code and, for an answer that is not empty, its record.
type reply struct {
	code dnsmessage.RCode
	body dnsmessage.ResourceBody
}

// readQuery reads a query. ok is false for what gets no answer: it has no header, or is an answer
// itself, and to answer it could begin a loop. A code other than success is the answer.
func readQuery(msg []byte) (q query, code dnsmessage.RCode, ok bool) {
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(msg); err != nil || q.header.Response {
		return query{}, 0, false
	}
	if q.header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	question, err := readQuestion(&p)
	if err != nil {
		return q, dnsmessage.RCodeFormatError, true
	}
	q.question = &question
	if q.edns, err = readEDNS(&p); err != nil {
		return q, dnsmessage.RCodeFormatError, true
	}
	return q, q.check(), true
}

// readQuestion reads the question of a message that has exactly one (RFC 9619).
func readQuestion(p *dnsmessage.Parser) (dnsmessage.Question, error) {
	q, err := p.Question()
	if err != nil {
		return q, err
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return q, errors.New("more than one question")
	}
	return q, nil
}

// readEDNS returns the header of the OPT record, or nil if there is none. Two are an error (RFC
// 6891, section 6.1.1).
func readEDNS(p *dnsmessage.Parser) (opt *dnsmessage.ResourceHeader, err error) {
	if err := errors.Join(p.SkipAllAnswers(), p.SkipAllAuthorities()); err != nil {
		return nil, err
	}
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return opt, nil
		}
		if err == nil {
			err = p.SkipAdditional()
		}
		switch {
		case err != nil:
			return nil, err
		case h.Type != dnsmessage.TypeOPT:
		case opt != nil || h.Name.String() != ".":
			return nil, errors.New("more than one OPT record, or one that is not the root's")
		default:
			opt = &h
		}
	}
}

// check returns the code for a query that is understood, but not of a kind that is answered.
func (q query) check() dnsmessage.RCode {
	switch {
	case q.edns != nil && q.edns.TTL>>16&0xff != 0: // the version: RFC 6891, section 6.1.3
		return badVersion
	case q.question.Class != dnsmessage.ClassINET:
		return dnsmessage.RCodeNotImplemented
	}
	return dnsmessage.RCodeSuccess
}

// host returns the name asked for in canonical form. Bytes that are not ASCII are refused before
// letters are folded: Unicode folds some to ASCII letters.
func (q query) host() (string, error) {
	name := q.question.Name.String()
	for i := range len(name) {
		if name[i] > 0x7f {
			return "", errors.New("no host name: not ASCII")
		}
	}
	return chat.CheckHost(name)
}

// pack returns the answer's bytes. The question stands in it exactly as it was asked: programs that
// mix upper and lower case in it compare it (draft-vixie-dnsext-dns0x20). No answer is longer than
// the 512 bytes that any program takes by UDP (RFC 1035, section 2.3.4): none is truncated.
func (q query) pack(r reply) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode,
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true,
		CheckingDisabled: q.header.CheckingDisabled, RCode: r.code & 0xf,
	}}
	if q.question != nil {
		m.Questions = []dnsmessage.Question{*q.question}
	}
	switch {
	case r.body != nil:
		h := dnsmessage.ResourceHeader{
			Name: q.question.Name, Class: dnsmessage.ClassINET, TTL: answerTTL,
		}
		m.Answers = []dnsmessage.Resource{{Header: h, Body: r.body}}
	case r.code == dnsmessage.RCodeSuccess || r.code == dnsmessage.RCodeNameError:
		m.Authorities = negative()
	}
	if q.edns != nil {
		m.Additionals = edns(r.code, q.edns.DNSSECAllowed())
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// negative is the SOA record that says for how long a negative answer may be kept (RFC 2308,
// section 3).
func negative() []dnsmessage.Resource {
	root := dnsmessage.MustNewName(".")
	return []dnsmessage.Resource{{
		Header: dnsmessage.ResourceHeader{
			Name: root, Class: dnsmessage.ClassINET, TTL: negativeTTL,
		},
		Body: &dnsmessage.SOAResource{NS: root, MBox: root, MinTTL: negativeTTL},
	}}
}

// edns is the OPT record of a message (RFC 6891, section 6.1.2).
func edns(code dnsmessage.RCode, dnssec bool) []dnsmessage.Resource {
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(payloadSize, code, dnssec); err != nil {
		return nil
	}
	return []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
}

// addrBody is the record of an address.
func addrBody(a netip.Addr) dnsmessage.ResourceBody {
	if a.Is4() {
		return &dnsmessage.AResource{A: a.As4()}
	}
	return &dnsmessage.AAAAResource{AAAA: a.As16()}
}
