package netns

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the only table of a session's namespace.
const tableName = "chatd"

// redirect gives what goes neither to loopback nor to the session's own address to the sockets on
// [Port]. In the form of nft(8), for each family and protocol:
//
//	ip daddr & 255.0.0.0 != 127.0.0.0 ip daddr != 198.18.0.1 meta l4proto tcp tproxy ip to :53 accept
//
// Other protocols find nobody: the namespace is their end.
func redirect() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("no netlink for packet rules: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	c.FlushTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: "redirect", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	for _, f := range families {
		for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: f.rule(proto)})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("no redirect: %w", err)
	}
	return nil
}

// family is what differs between IPv4 and IPv6 in a rule. daddr is where a header has the
// destination, in bytes (RFC 791, RFC 8200).
type family struct {
	proto    byte
	daddr    uint32
	own      netip.Addr
	loopback netip.Prefix
}

var families = []family{
	{unix.NFPROTO_IPV4, 16, Own4, netip.MustParsePrefix("127.0.0.0/8")},
	{unix.NFPROTO_IPV6, 24, Own6, netip.MustParsePrefix("::1/128")},
}

// rule is the rule for one protocol, as the expressions of nf_tables.
func (f family) rule(proto byte) []expr.Any {
	size := uint32(f.own.BitLen() / 8)
	load := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: f.daddr,
		Len: size}
	mask := make([]byte, size)
	for i := range f.loopback.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		load,
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: f.own.AsSlice()},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte,
			size)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: f.loopback.Addr().AsSlice()},
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(Port)},
		&expr.TProxy{Family: f.proto, TableFamily: unix.NFPROTO_INET, RegPort: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}
