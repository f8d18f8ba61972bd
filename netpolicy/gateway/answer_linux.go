package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
)

// answer answers a call of chatd-egress, which may be taken over: it gets sockets of chats that are
// open, of DNS servers that chatd-root named, and inside a chat's own network, and no others.
func (g *Gateway) answer(_ context.Context, c uplink.Call, files []*os.File) ([]*os.File, uplink.Answer) {
	f, err := g.fileFor(c)
	switch err = errors.Join(err, uplink.CloseFiles(files)); {
	case err != nil:
		return nil, uplink.Answer{Error: err.Error()}
	case f == nil:
		return nil, uplink.Answer{}
	}
	return []*os.File{f}, uplink.Answer{}
}

// fileFor is what a call is answered with; nil for a report.
func (g *Gateway) fileFor(c uplink.Call) (*os.File, error) {
	switch c.Verb {
	case uplink.Events:
		return nil, g.takeEvents(c)
	case uplink.Socket, uplink.Upstream:
		h, err := g.chatOf(c.Chat)
		if err == nil {
			err = g.flows.take(h.ID, h.Owner)
		}
		if err != nil {
			return nil, err
		}
		if c.Verb == uplink.Upstream {
			return g.upstream(c)
		}
		return socketOf(h.UID, g.opt.GID, c)
	case uplink.Reply:
		return g.reply(c)
	case uplink.Certificate:
		return g.certificate(c)
	}
	return nil, chat.Invalid("cannot do %s", chat.Quote(string(c.Verb)))
}

// socketOf makes a socket in the host's network, of a chat's uid and the gid of chatd-egress.
func socketOf(uid, gid uint32, c uplink.Call) (*os.File, error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if c.IPv6 {
		domain = unix.AF_INET6
	}
	if c.UDP {
		kind = unix.SOCK_DGRAM
	}
	s, err := sys.SocketOf(uid, gid, domain, kind)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(s), "carried"), nil
}

// upstream makes a socket to a DNS server. Its uid has packet rules of its own, for it may be
// disconnected and connected elsewhere (connect(2), AF_UNSPEC).
func (g *Gateway) upstream(c uplink.Call) (*os.File, error) {
	servers := g.dnsServers()
	if c.Server < 0 || c.Server >= len(servers) {
		return nil, chat.Invalid("cannot ask DNS server %d: there are %d", c.Server, len(servers))
	}
	to := servers[c.Server]
	c.IPv6 = to.Addr().Is6()
	f, err := socketOf(g.opt.DNSUID, g.opt.GID, c)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err == nil {
		var connErr error
		err = raw.Control(func(fd uintptr) { connErr = unix.Connect(int(fd), netns.Sockaddr(to)) })
		if !errors.Is(connErr, unix.EINPROGRESS) {
			err = errors.Join(err, connErr)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot reach DNS server %s: %w", to, err), f.Close())
	}
	return f, nil
}

// TryReply reports what keeps some answers of datagrams from their programs; see [netns.TryReply].
func (g *Gateway) TryReply() error { return netns.TryReply() }

// reply makes the socket by which a chat's program is answered.
func (g *Gateway) reply(c uplink.Call) (*os.File, error) {
	h, err := g.chatOf(c.Chat)
	if err != nil {
		return nil, err
	}
	a := c.Local.Addr()
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsLoopback() || a.IsUnspecified() ||
		a.IsMulticast() || a == netns.Own4 || a == netns.Own6 || a.Is4() != c.Remote.Addr().Is4() {
		return nil, chat.Invalid("cannot answer from %s: want an address outside the session", c.Local)
	}
	return h.ns.Reply(c.Local, c.Remote)
}
