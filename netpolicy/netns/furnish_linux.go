package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Port is where the redirect leads, for TCP and for datagrams. It is that of DNS, so that an answer
// of the datagram socket to a query comes from the port that was asked. A chat's programs cannot
// take it: it is below the unprivileged ones (ip(7), ip_unprivileged_port_start).
const Port = 53

// The session's own addresses, from which its connections to everything but loopback come.
var (
	Own4 = netip.MustParseAddr("198.18.0.1")
	Own6 = netip.MustParseAddr("fd63:6861:7464::1")
)

// Configure gives the namespace its addresses, the route that makes every address local, and the
// redirect. It can be repeated.
func (n *Namespace) Configure() error {
	err := n.in(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("no lo: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("lo does not come up: %w", err)
		}
		err = makeLocal(lo, Own4, "0.0.0.0/0")
		if err6 := makeLocal(lo, Own6, "::/0"); !errors.Is(err6, errNoIPv6) {
			err = errors.Join(err, err6)
		}
		return errors.Join(err, redirect())
	})
	if err != nil {
		return fmt.Errorf("cannot set up the network of a session: %w", err)
	}
	return nil
}

// errNoIPv6 means that the host's kernel has no IPv6, or switched it off.
var errNoIPv6 = errors.New("no IPv6")

// makeLocal gives lo an address and makes all addresses of its family local. Without a source
// address of their own, connections would come from the address that they go to. lo needs no
// duplicate address detection, during which an IPv6 address is not a source.
func makeLocal(lo netlink.Link, own netip.Addr, all string) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP: own.AsSlice(), Mask: net.CIDRMask(own.BitLen(), own.BitLen()),
	}}
	if own.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		if own.Is6() && isNoIPv6(err) {
			return errNoIPv6
		}
		return fmt.Errorf("lo does not get the address %s: %w", own, err)
	}
	_, to, err := net.ParseCIDR(all)
	if err != nil {
		return err
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL,
		Scope: netlink.SCOPE_HOST, Dst: to, Src: own.AsSlice(),
	})
	if err != nil {
		return fmt.Errorf("no route for %s: %w", all, err)
	}
	return nil
}

func isNoIPv6(err error) bool {
	for _, no := range []error{unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.EACCES, unix.EPERM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
