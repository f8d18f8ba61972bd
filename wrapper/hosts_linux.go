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
var ports = map[string]uint16{"http": 80, "https": 443, "ftp": 21, "git": 9418, "sftp": 22}

// hosts holds the hosts of the command line against the profile's egress.
func (s shim) hosts() denial {
	if s.policy.Home == "" {
		return denial{} // no policy
	}
	for _, h := range append(s.named(), s.registries()...) {
		to, isProxy, ok := s.via(h)
		if !ok {
			continue // the wall for packets knows
		}
		if isProxy && s.proxyByName(to) {
			return denial{"egress", "it goes by the proxy " + to.place() + ", which is listed by name, " +
				"and each request there has to be to that name", "ask an operator to list its address"}
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

func (h host) unlisted() string { return h.place() + " is not in the profile's egress" }

func (h host) place() string {
	if h.port == 0 {
		return h.name
	}
	return net.JoinHostPort(h.name, strconv.Itoa(int(h.port)))
}

// opened reports whether the list opens a host, as chatd-egress decides it; a port that is not known
// may be any. A name that is none in a list is let through: a program may write it as xn--, or read
// it as an address.
func opened(list []chat.Allow, h host) bool {
	addr, err := netip.ParseAddr(h.name)
	name, odd := chat.CheckHost(h.name)
	if isOwn(name) || err != nil && odd != nil {
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

// isOwn reports whether a name means the chat itself (RFC 6761, section 6.3).
func isOwn(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
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

// named are the hosts that the arguments of a network program name, as far as it connects to them
// itself and no setting says otherwise.
func (s shim) named() []host {
	switch s.name {
	case "curl", "wget":
		if _, elsewhere := s.option(elsewhere...); elsewhere {
			return nil
		}
		return s.urls(true)
	case "git":
		return s.gitHosts()
	case "pip", "pip3", "npm":
		return s.urls(false)
	case "ssh", "scp", "sftp":
		return s.sshHosts()
	case "nc":
		return ncHosts(s.argv[1:])
	}
	return nil
}

// operandsOf are the words that are no options and no values of options, of which a value follows
// these letters and long ones.
func operandsOf(args []string, valued string, long []string) (operands []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(operands, args[i+1:]...)
		case len(a) > 1 && a[0] == '-' && a[1] != '-':
			if strings.IndexAny(a, valued) == len(a)-1 {
				i++
			}
		case slices.Contains(long, a):
			i++
		case strings.HasPrefix(a, "-"):
		default:
			operands = append(operands, a)
		}
	}
	return operands
}

// urls are the hosts of URLs; bare says that a word without scheme is one too.
func (s shim) urls(bare bool) []host {
	letters := map[bool]string{true: lettersValued[s.name]}[bare]
	operands := operandsOf(s.argv[1:], letters, longValued[s.name])
	return hostsOfURLs(operands, bare)
}

func hostsOfURLs(operands []string, bare bool) []host {
	var all []host
	for _, o := range operands {
		if !strings.Contains(o, "://") {
			if !bare || strings.HasPrefix(o, "/") || strings.HasPrefix(o, ".") || !strings.ContainsAny(o, ".:") {
				continue
			}
			o = "http://" + o
		}
		u, err := url.Parse(o)
		// ssh has its own shim.
		if err == nil && u.Hostname() != "" && !strings.Contains(u.Scheme, "ssh") {
			port := ports[u.Scheme]
			if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
				port = uint16(n)
			}
			all = append(all, host{u.Hostname(), port, u.Scheme})
		}
	}
	return all
}

func ncHosts(args []string) []host {
	operands := operandsOf(args, "eiIOPpqsTVwWXx", nil)
	listens := slices.ContainsFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "-") && strings.Contains(a, "l")
	})
	if len(operands) != 2 || listens {
		return nil
	}
	n, err := strconv.ParseUint(operands[1], 10, 16)
	if err != nil {
		return nil
	}
	return []host{{name: operands[0], port: uint16(n)}}
}
