package wrapper

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
)

// host is one place that a command line names.
type host struct {
	name string
	port uint16 // 0 if it is not known
	// scheme is that of the URL; empty if it is not a URL.
	scheme string
}

// ports are the schemes that are known.
var ports = map[string]uint16{"http": 80, "https": 443, "ftp": 21, "ssh": 22, "git": 9418, "sftp": 22}

// hosts holds the hosts of the command line against the profile's egress.
func (s shim) hosts() denial {
	if s.policy.Home == "" {
		return denial{} // no policy
	}
	for _, h := range append(hostsOf(s.name, s.argv[1:]), s.registries()...) {
		to, isProxy, ok := s.via(h)
		if !ok {
			continue // the wall for packets knows
		}
		if why := unreachable(s.policy, to); why != "" {
			if isProxy {
				why = "it goes by the proxy " + to.name + ": " + why
			}
			return denial{"egress", why, "allowed: " + reachable(s.policy)}
		}
	}
	return denial{}
}

// unreachable says why a host cannot be reached; empty if it may be.
func unreachable(p shims.ShimPolicy, h host) string {
	addr, err := netip.ParseAddr(h.name)
	switch {
	case h.name == "localhost" || err == nil && addr.IsLoopback():
		return ""
	case p.Network == chat.NetworkNone:
		return "this profile has no network"
	case opened(p.Egress, h):
		return ""
	}
	return h.unlisted()
}

func (h host) unlisted() string {
	to := h.name
	if h.port != 0 {
		to = net.JoinHostPort(h.name, strconv.Itoa(int(h.port)))
	}
	return to + " is not in the profile's egress"
}

// opened reports whether the list opens a host, as chatd-egress decides it; a port that is not known
// may be any. A name that is none in a list is let through: a program may write it as xn--, or read
// it as an address.
func opened(list []chat.Allow, h host) bool {
	addr, err := netip.ParseAddr(h.name)
	name, odd := chat.CheckHost(h.name)
	own := name == "localhost" || strings.HasSuffix(name, ".localhost") // RFC 6761, section 6.3
	if own || err != nil && odd != nil {
		return true
	}
	tries := []uint16{h.port}
	if h.port == 0 {
		tries = nil
		for _, a := range list {
			tries = append(tries, a.Low)
		}
	}
	return slices.ContainsFunc(tries, func(port uint16) bool {
		_, byName := chat.ReachableHost(list, false, name, port)
		_, byAddr := chat.ReachableAddr(list, false, netip.AddrPortFrom(addr.Unmap(), port))
		return byName || byAddr
	})
}

// maxListed is how many destinations a line names.
const maxListed = 5

func reachable(p shims.ShimPolicy) string {
	if p.Network == chat.NetworkNone || len(p.Egress) == 0 {
		return "your own servers on localhost"
	}
	var list []string
	for _, a := range p.Egress[:min(len(p.Egress), maxListed)] {
		list = append(list, a.String())
	}
	if more := len(p.Egress) - maxListed; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// hostsOf finds the hosts that the arguments of a network program name.
func hostsOf(name string, args []string) []host {
	switch name {
	case "curl", "wget":
		return urls(args, true)
	case "git", "pip", "pip3", "npm":
		return urls(args, false)
	case "ssh", "scp", "sftp":
		return sshHosts(name, args)
	case "nc":
		return ncHosts(args)
	}
	return nil
}

// valued are the options of curl, wget and ssh that are followed by a value, by letters.
const (
	fetchValued = "HdXoAebcFuUTmxrwOPQtEKYyCDz"
	sshValued   = "BbcDEeFIiJLlmOoPpQRSWw"
)

// operandsOf are the words that are no options and no values of options.
func operandsOf(args []string, valued string) (operands []string, values map[byte]string) {
	values = map[byte]string{}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(operands, args[i+1:]...), values
		case len(a) > 1 && a[0] == '-' && a[1] != '-':
			if l := a[len(a)-1]; strings.IndexByte(valued, l) >= 0 && i+1 < len(args) {
				i++
				values[l] = args[i]
			}
		case slices.Contains(longValued, a):
			i++
		case strings.HasPrefix(a, "-"):
		default:
			operands = append(operands, a)
		}
	}
	return operands, values
}

// urls are the hosts of URLs; bare says that a word without scheme is one too.
func urls(args []string, bare bool) []host {
	operands, _ := operandsOf(args, map[bool]string{true: fetchValued}[bare])
	var all []host
	for _, o := range operands {
		if !strings.Contains(o, "://") {
			if !bare || strings.HasPrefix(o, "/") || strings.HasPrefix(o, ".") || !strings.ContainsAny(o, ".:") {
				continue
			}
			o = "http://" + o
		}
		if u, err := url.Parse(o); err == nil && u.Hostname() != "" {
			port := ports[u.Scheme]
			if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
				port = uint16(n)
			}
			all = append(all, host{u.Hostname(), port, u.Scheme})
		}
	}
	return all
}

func sshHosts(name string, args []string) []host {
	operands, values := operandsOf(args, sshValued)
	port := uint16(22)
	letter := map[bool]byte{true: 'p', false: 'P'}[name == "ssh"]
	if n, err := strconv.ParseUint(values[letter], 10, 16); err == nil {
		port = uint16(n)
	}
	if name == "ssh" && len(operands) > 1 {
		operands = operands[:1]
	}
	var all []host
	for _, o := range operands {
		if name == "scp" {
			at, _, remote := strings.Cut(o, ":")
			if !remote || strings.Contains(at, "/") {
				continue
			}
			o = at
		}
		_, h, user := strings.Cut(strings.TrimPrefix(o, "ssh://"), "@")
		if !user {
			h = strings.TrimPrefix(o, "ssh://")
		}
		all = append(all, host{name: strings.Trim(h, "[]"), port: port})
	}
	return all
}

func ncHosts(args []string) []host {
	operands, _ := operandsOf(args, "eiIOPpqsTVwWXx")
	listens := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.Contains(a, "l") })
	if len(operands) != 2 || listens {
		return nil
	}
	n, err := strconv.ParseUint(operands[1], 10, 16)
	if err != nil {
		return nil
	}
	return []host{{name: operands[0], port: uint16(n)}}
}
