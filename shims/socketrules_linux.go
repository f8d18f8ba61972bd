package shims

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// netProtocols are the protocols of AF_INET and AF_INET6 that a socket may have. No test of the
// owner rules covers raw sockets, SCTP, DCCP, SMC and others. The kernel charges no chat for
// the data that waits in a ping socket, and no egress rule allows its packets.
var netProtocols = []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP}

// netTypes are the socket types to allow with them: protocol 0 means SCTP for SOCK_SEQPACKET and
// DCCP for SOCK_DCCP. The low four bits are the type, the others are flags (socket(2)).
var netTypes = []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM}

const socketTypeMask = 0xf

// socketRule allows AF_UNIX, AF_INET and AF_INET6, and NETLINK_ROUTE for a profile that opens
// it. AF_VSOCK bypasses packet filters, NETLINK_CONNECTOR reports every process of the host, and
// the kernel charges no cgroup for data that waits in a netlink socket.
func socketRule(netlink bool) []bpf.Instruction {
	return slices.Concat(
		oneOf(0, unix.EPERM, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK),
		when(0, unix.AF_NETLINK, netlinkRule(netlink)),
		when(0, unix.AF_INET, inetRule()),
		when(0, unix.AF_INET6, inetRule()))
}

// when runs body for one value of an argument.
func when(arg, value uint32, body []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{
		argument(arg),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: uint8(len(body))},
	}, body...)
}

// netlinkRule refuses NETLINK_ROUTE as a kernel without netlink does. getaddrinfo(3) still
// works then; getifaddrs(3) fails, and so does os.networkInterfaces of Node.
func netlinkRule(open bool) []bpf.Instruction {
	rule := oneOf(2, unix.EPERM, unix.NETLINK_ROUTE)
	if !open {
		rule = append(rule, refuseWith(unix.EAFNOSUPPORT))
	}
	return rule
}

// inetRule refuses MPTCP as a kernel without it does: programs then take TCP.
func inetRule() []bpf.Instruction {
	kind := oneOf(1, unix.EPERM, netTypes...)
	return slices.Concat(anyOf(2, unix.EPROTONOSUPPORT, unix.IPPROTO_MPTCP),
		oneOf(2, unix.EPERM, netProtocols...),
		slices.Insert(kind, 1, bpf.Instruction(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketTypeMask})))
}

// optionsOfLevel are the options of one level of setsockopt(2).
type optionsOfLevel struct {
	level uint32
	// ignored options have no effect, and setsockopt(2) returns success.
	ignored []uint32
	allowed []uint32
}

// socketOptions are the options that a chat may set. It is an allowlist, because many
// other options hold memory that the kernel charges to no chat: a time stamp or an error
// keeps a copy of the packet on the error queue; a filter takes compiled code from the
// host's one pool; each multicast group is an entry in a list of the kernel, and a way
// around owner rules.
//
// The sizes of buffers are ignored: the kernel itself returns success and sets less
// where net.core.rmem_max is less. IP_RECVERR is ignored because the resolver of glibc
// gives up a socket on which it fails.
var socketOptions = []optionsOfLevel{
	{unix.SOL_SOCKET, []uint32{unix.SO_SNDBUF, unix.SO_RCVBUF}, []uint32{
		unix.SO_REUSEADDR, unix.SO_DONTROUTE, unix.SO_BROADCAST, unix.SO_KEEPALIVE, unix.SO_OOBINLINE,
		unix.SO_PRIORITY, unix.SO_LINGER, unix.SO_REUSEPORT, unix.SO_PASSCRED, unix.SO_RCVLOWAT,
		unix.SO_SNDLOWAT, unix.SO_RCVTIMEO, unix.SO_SNDTIMEO, unix.SO_RCVTIMEO_NEW, unix.SO_SNDTIMEO_NEW,
		unix.SO_BINDTODEVICE, unix.SO_PASSSEC, unix.SO_PEEK_OFF, unix.SO_RXQ_OVFL, unix.SO_INCOMING_CPU,
		unix.SO_PASSPIDFD,
	}},
	{unix.IPPROTO_TCP, nil, []uint32{
		unix.TCP_NODELAY, unix.TCP_MAXSEG, unix.TCP_CORK, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL,
		unix.TCP_KEEPCNT, unix.TCP_SYNCNT, unix.TCP_LINGER2, unix.TCP_DEFER_ACCEPT, unix.TCP_WINDOW_CLAMP,
		unix.TCP_QUICKACK, unix.TCP_CONGESTION, unix.TCP_USER_TIMEOUT, unix.TCP_NOTSENT_LOWAT,
		unix.TCP_INQ,
	}},
	{unix.IPPROTO_IP, []uint32{unix.IP_RECVERR}, []uint32{
		unix.IP_TOS, unix.IP_TTL, unix.IP_PKTINFO, unix.IP_MTU_DISCOVER, unix.IP_RECVTTL, unix.IP_RECVTOS,
		unix.IP_FREEBIND, unix.IP_RECVORIGDSTADDR, unix.IP_MINTTL, unix.IP_BIND_ADDRESS_NO_PORT,
		unix.IP_RECVFRAGSIZE, unix.IP_MULTICAST_IF, unix.IP_MULTICAST_TTL, unix.IP_MULTICAST_LOOP,
		unix.IP_MULTICAST_ALL, unix.IP_UNICAST_IF, unix.IP_LOCAL_PORT_RANGE,
	}},
	{unix.IPPROTO_IPV6, []uint32{unix.IPV6_RECVERR}, []uint32{
		unix.IPV6_V6ONLY, unix.IPV6_UNICAST_HOPS, unix.IPV6_MULTICAST_IF, unix.IPV6_MULTICAST_HOPS,
		unix.IPV6_MULTICAST_LOOP, unix.IPV6_MULTICAST_ALL, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU,
		unix.IPV6_RECVPKTINFO, unix.IPV6_RECVHOPLIMIT, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS,
		unix.IPV6_DONTFRAG, unix.IPV6_RECVPATHMTU, unix.IPV6_AUTOFLOWLABEL, unix.IPV6_ADDR_PREFERENCES,
		unix.IPV6_RECVORIGDSTADDR, unix.IPV6_RECVFRAGSIZE, unix.IPV6_FREEBIND, unix.IPV6_UNICAST_IF,
	}},
	{unix.IPPROTO_UDP, nil, []uint32{unix.UDP_SEGMENT, unix.UDP_GRO}},
}

// optionRule refuses setsockopt(2) with options that socketOptions lacks, with the error of a
// kernel that lacks the option. Netlink sockets, where allowed, may set all of theirs.
func optionRule(netlink bool) []bpf.Instruction {
	var levels []uint32
	for _, l := range socketOptions {
		levels = append(levels, l.level)
	}
	if netlink {
		levels = append(levels, unix.SOL_NETLINK)
	}
	out := oneOf(1, unix.ENOPROTOOPT, levels...)
	for _, l := range socketOptions {
		body := slices.Concat(anyOf(2, 0, l.ignored...), oneOf(2, unix.ENOPROTOOPT, l.allowed...))
		if l.level == unix.IPPROTO_TCP {
			// TCP_FASTOPEN_CONNECT makes connect(2) wait for data, see MSG_FASTOPEN.
			body = append(anyOf(2, unix.EOPNOTSUPP, unix.TCP_FASTOPEN_CONNECT), body...)
		}
		out = append(out, when(1, l.level, body)...)
	}
	return out
}

// filterRules refuse further filters of system calls with EINVAL, as a kernel without them does.
// Their compiled code comes from one pool of the host and is charged to no cgroup.
func filterRules(open bool) []bpf.Instruction {
	if open {
		return nil
	}
	mode := when(0, unix.PR_SET_SECCOMP, anyOf(1, unix.EINVAL, unix.SECCOMP_MODE_FILTER))
	return append(rule(unix.SYS_PRCTL, mode),
		rule(unix.SYS_SECCOMP, anyOf(0, unix.EINVAL, unix.SECCOMP_SET_MODE_FILTER))...)
}
