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

// CheckHost returns the canonical form of a host name: lower case, without the dot of the root at
// its end. Labels have letters, digits, hyphens and underscores (RFC 1123, section 2.1; RFC 2181,
// section 11). Other letters are refused: the name is looked up and compared as it stands, in the
// ASCII form that programs send (xn--, RFC 5891). A name whose last label is a number is an
// address to some programs (inet_aton(3)), and is refused.
func CheckHost(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return "", fmt.Errorf("%s is no host name: want 1 to 253 characters", Quote(s))
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%s is no host name: %w", Quote(s), err)
		}
	}
	if endsInNumber(name) {
		return "", fmt.Errorf("%s is no host name: some programs take it for an address", Quote(s))
	}
	return strings.ToLower(name), nil // not earlier: it makes a k of U+212A, the Kelvin sign
}

func checkLabel(label string) error {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return fmt.Errorf("label %s: want 1 to 63 characters, and no hyphen at an end",
			Quote(label))
	}
	for _, r := range label {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		case r > 0x7f:
			return fmt.Errorf("label %s: want its ASCII form, which begins with xn--", Quote(label))
		default:
			return fmt.Errorf("label %s: want letters, digits, hyphens and underscores",
				Quote(label))
		}
	}
	return nil
}

// endsInNumber reports whether the last label is decimal, octal or hexadecimal (inet_aton(3)).
func endsInNumber(name string) bool {
	last := strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
