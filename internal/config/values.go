package config

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/journal"
)

// CheckValue examines the value of a key, of which kind has * for each name and [] for each index; to
// is its pointer. It may make the value canonical.
func CheckValue(kind string, to any, text string) error {
	if check := checks[kind]; check != nil {
		return check(to, text)
	}
	return nil
}

// check examines a value that was read, to is its pointer, and may make it canonical.
type check func(to any, text string) error

// checks has those of single keys; the others are of what depends on several.
var checks = map[string]check{
	"state": absolute, "run": absolute, "homes": absolute, "socket": absolute, "userdb": absolute,
	"shim": absolute, "enforce": absolute, "egress_program": absolute,
	"archive.dir": absolute, "archive.program": absolute,
	"archive.recipients": absolute, "archive.identities": absolute,
	"profiles.*.skeleton": absolute, "profiles.*.access_file": absolute,
	"user": named("a user name"), "egress_user": named("a user name"), "cgroup": named("a cgroup name"),
	"operators_group": named("a group name"), "bridge_group": named("a group name"),
	"backend": oneOf("auto", "systemd", "cgroupfs"), "account": oneOf("auto", "userdb", "useradd"),
	"log_level": oneOf(journal.Levels()...), "allow_missing[]": oneOf(chat.LayerNames()...),
	"landlock_min_abi": number(1, 64), "max_awake": number(1, 1<<20), "audit_keep": number(0, 1<<20),
	// The lowest file_max is the size of a request's text.
	"file_max": size(func(n uint64) bool { return n >= filewire.MaxText && n <= 1<<40 }, "1MiB to 1TiB"),
	// A log of less would hold a few lines, as after a mistaken unit.
	"audit_max": size(func(n uint64) bool {
		return n-1 >= 64<<10-1
	}, "0, for never, or at least 64KiB"),
	"owner_shares.*": size(func(n uint64) bool {
		return n <= 1<<31
	}, "0, for no bound, to 2147483648"),
	"archive.expire_after":  longAge,
	"profiles.*.reap_after": longAge,
	"profiles.*.timeout_max": func(to any, _ string) error {
		return chat.CheckTimeoutMax(*to.(*chat.Duration))
	},
	"profiles.*.tools_off[]":      toolName,
	"dns_servers[]":               dnsServer,
	"profiles.*.agents.*.tools[]": toolName, "profiles.*.agents.*.tools_off[]": toolName,
}

var toolName = oneOf(append(chat.Tools(), chat.ToolReadOnly)...)

func absolute(to any, text string) error {
	if !filepath.IsAbs(text) || strings.ContainsAny(text, "\x00\n") {
		return Wrong(text, "an absolute path")
	}
	*to.(*string) = filepath.Clean(text)
	return nil
}

func oneOf[S ~string](words ...S) check {
	return func(_ any, text string) error {
		if !slices.Contains(words, S(text)) {
			return Wrong(text, "one of "+Words(words))
		}
		return nil
	}
}

func named(what string) check {
	return func(_ any, text string) error { return chat.CheckName(what, text) }
}

func number(low, high int) check {
	return func(to any, text string) error {
		if n := *to.(*int); n < low || n > high {
			return Wrong(text, fmt.Sprintf("%d to %d", low, high))
		}
		return nil
	}
}

func size(ok func(n uint64) bool, want string) check {
	return func(to any, text string) error {
		if !ok(*to.(*uint64)) {
			return Wrong(text, want)
		}
		return nil
	}
}

// shortestLongAge is the least time after which something is removed for good: 30s is a slip for
// 30d.
const shortestLongAge = time.Hour

// longAge checks a time after which something is removed.
func longAge(to any, text string) error {
	if d := to.(*chat.Duration).D(); d != 0 && d < shortestLongAge {
		return Wrong(text, "0, for never, or at least "+shortestLongAge.String())
	}
	return nil
}

// UIDRange is the uids that chats may get, both ends included.
type UIDRange struct{ Low, High uint32 }

// MarshalText writes LOW-HIGH.
func (r UIDRange) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d-%d", r.Low, r.High), nil }

// UnmarshalText reads LOW-HIGH.
func (r *UIDRange) UnmarshalText(text []byte) error {
	a, b, _ := strings.Cut(string(text), "-")
	low, err1 := strconv.ParseUint(a, 10, 31)
	high, err2 := strconv.ParseUint(b, 10, 31)
	got := UIDRange{uint32(low), uint32(high)}
	if err1 != nil || err2 != nil || got.check() != nil {
		return Wrong(string(text), wantUIDs)
	}
	*r = got
	return nil
}

const wantUIDs = "LOW-HIGH within 65536-2147483647"

// check refuses uids below 65536, which belong to the system, and those from 2^31 on, which many
// programs read as negative.
func (r UIDRange) check() error {
	if r.Low > r.High || r.Low < 1<<16 || r.High >= 1<<31 {
		return Wrong(fmt.Sprintf("%d-%d", r.Low, r.High), wantUIDs)
	}
	return nil
}

// dnsServer refuses an address with a zone: it names a device, which may be another one tomorrow.
func dnsServer(to any, text string) error {
	if server := *to.(*netip.AddrPort); server.Port() == 0 || !isServer(server.Addr()) ||
		server.Addr().Is4In6() {
		return Wrong(text, WantServer)
	}
	return nil
}

// WantServer is the form of a DNS server.
const WantServer = "ADDRESS, ADDRESS:PORT or [IPV6]:PORT"

const (
	dnsPort = 53
	// maxServers is MAXNS of resolv.conf(5).
	maxServers = 3
)

// isServer reports whether one server may have the address.
func isServer(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast()
}

// ReadResolvConf returns the first three name servers of a file in the form of resolv.conf(5), and
// 127.0.0.1 where it has none, as the C library does (resolver(3)). Servers with a zone are left
// out, and so is what follows a line that cannot be read.
func ReadResolvConf(r io.Reader) []netip.AddrPort {
	var servers []netip.AddrPort
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(servers) < maxServers {
		// The keyword begins its line; a comment may follow the address (glibc, res_init.c).
		rest, ok := strings.CutPrefix(lines.Text(), "nameserver")
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		rest = strings.TrimLeft(rest, " \t")
		if end := strings.IndexAny(rest, ";# \t"); end >= 0 {
			rest = rest[:end]
		}
		if a, err := netip.ParseAddr(rest); err == nil && isServer(a.Unmap()) {
			servers = append(servers, netip.AddrPortFrom(a.Unmap(), dnsPort))
		}
	}
	if len(servers) == 0 {
		loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		servers = append(servers, netip.AddrPortFrom(loopback, dnsPort))
	}
	return servers
}
