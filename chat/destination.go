package chat

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Destination is a port of a host, by TCP unless it says UDP.
type Destination struct {
	// Host is a name in any form that [CheckHost] reads, or an address without brackets.
	Host string
	Port uint16
	UDP  bool
}

// ParseDestination reads HOST:PORT, IPv6 in brackets, TCP unless it begins with "udp:".
func ParseDestination(s string) (Destination, error) {
	rest, udp := strings.CutPrefix(s, "udp:")
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return Destination{}, destinationError(s, "no port")
	}
	port, err := parsePort(rest[i+1:])
	if err != nil {
		return Destination{}, destinationError(s, err.Error())
	}
	host := rest[:i]
	inside, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(inside, "]")
	}
	if bracketed != strings.Contains(host, ":") || bracketed && !strings.HasSuffix(inside, "]") {
		return Destination{}, destinationError(s, "wrong brackets")
	}
	d := Destination{Host: host, Port: port, UDP: udp}
	return d, d.Validate()
}

// Validate reports the first invalid field, as [ErrInvalid].
func (d Destination) Validate() error {
	if _, _, err := d.resolve(); err != nil {
		return destinationError(d.Host, err.Error())
	}
	if d.Port == 0 {
		return destinationError(d.Host, "no port")
	}
	return nil
}

func destinationError(s, why string) error {
	return Invalid("cannot use the destination %s: %s: want HOST:PORT, IPv6 in brackets", Quote(s), why)
}

// resolve returns the address, or the name in the form of [CheckHost].
func (d Destination) resolve() (addr netip.Addr, name string, err error) {
	if addr, err = netip.ParseAddr(d.Host); err == nil && addr.Zone() != "" {
		err = fmt.Errorf("%s has a zone", Quote(d.Host))
		return netip.Addr{}, "", err
	}
	if err == nil {
		return addr.Unmap(), "", nil
	}
	name, err = CheckHost(d.Host)
	return netip.Addr{}, name, err
}

// Addr is the address of a valid destination; invalid for a name.
func (d Destination) Addr() netip.Addr {
	addr, _, _ := d.resolve()
	return addr
}

// Name is the name of a valid destination, in the form of [CheckHost]; empty for an address.
func (d Destination) Name() string {
	_, name, _ := d.resolve()
	return name
}

// String is the canonical form that [ParseDestination] reads.
func (d Destination) String() string {
	host := d.Name()
	if addr := d.Addr(); addr.Is6() {
		host = "[" + addr.String() + "]"
	} else if addr.IsValid() {
		host = addr.String()
	}
	proto := map[bool]string{true: "udp:"}[d.UDP]
	return proto + host + ":" + strconv.Itoa(int(d.Port))
}
