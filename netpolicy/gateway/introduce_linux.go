package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
)

// errNotYet: chatd-egress does not know the chat yet, and carries nothing for it.
var errNotYet = errors.New("chatd-egress is about to be told")

// introduce greets chatd-egress, and closes the chats that it has from an earlier chatd-root and
// that are not awake. Those that are, it hears of by retry. Each of them is told by itself: between
// two of them others are woken and put to sleep, however long chatd-egress takes.
func (g *Gateway) introduce(ctx context.Context, conn *uplink.Conn) error {
	servers := g.dnsServers()
	known, err := hello(ctx, conn, servers)
	if err != nil {
		return err
	}
	if err := g.meet(ctx, conn, servers, known); err != nil {
		return err
	}
	for _, id := range known {
		if err := g.closeUnknown(ctx, conn, id); err != nil {
			return err
		}
	}
	return nil
}

// meet makes conn the one that is told of chats, and says what it has missed that is of no chat.
func (g *Gateway) meet(
	ctx context.Context, conn *uplink.Conn, servers []netip.AddrPort, known []chat.ID,
) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	chats := maps.Clone(g.chats)
	g.conn = conn
	now := g.servers
	g.mu.Unlock()
	for id, h := range chats {
		h.lost = errNotYet
		if !slices.Contains(known, id) {
			g.tellLost(h) // it is another chatd-egress
		}
		h.known = slices.Contains(known, id) && (h.handed || h.tcp == nil)
	}
	if !slices.Equal(now, servers) { // replaced while nobody was there to be told
		if err := g.tell(ctx, conn, uplink.Call{Verb: uplink.Hello, Upstreams: now}); err != nil {
			return err
		}
	}
	g.secretsLost = g.tellSecrets(ctx, conn)
	return nil
}

// closeUnknown closes a chat that is not open here.
func (g *Gateway) closeUnknown(ctx context.Context, conn *uplink.Conn, id chat.ID) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	if _, err := g.chatOf(id); err == nil {
		return nil
	}
	return g.tell(ctx, conn, uplink.Call{Verb: uplink.Close, Chat: id})
}

func (g *Gateway) dnsServers() []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers
}

// hello makes the first call, and returns the chats that chatd-egress carries for.
func hello(ctx context.Context, conn *uplink.Conn, servers []netip.AddrPort) ([]chat.ID, error) {
	a, err := call(ctx, conn, dialTimeout, uplink.Call{Verb: uplink.Hello, Upstreams: servers})
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(err, errHung)
	}
	return a.Chats, err
}

// renew tells chatd-egress of a chat that it may know. The caller holds telling.
func (g *Gateway) renew(ctx context.Context, conn *uplink.Conn, h *openChat) error {
	if h.known {
		return g.tell(ctx, conn, g.changed(h.ID, h.Allow))
	}
	if h.tcp == nil {
		// The chatd-egress that had them has ended, or ends soon, and so the port is free.
		tcp, udp, err := h.ns.Listen()
		if err != nil {
			return err
		}
		names, err := g.openNames(h.ID, 0)
		if err != nil {
			return errors.Join(err, uplink.CloseFiles([]*os.File{tcp, udp}))
		}
		h.tcp, h.udp, h.names = tcp, udp, names
	}
	return g.open(ctx, conn, h)
}

// retry tells chatd-egress of the chats that it does not carry for, and returns why some still are
// such.
func (g *Gateway) retry(ctx context.Context, conn *uplink.Conn) error {
	secrets := g.retrySecrets(ctx, conn)
	var lost []chat.ID
	var why error
	for _, id := range g.openChats() {
		if err := g.retryChat(ctx, conn, id); err != nil {
			lost, why = append(lost, id), cmp.Or(why, err)
		}
	}
	if len(lost) == 0 {
		return secrets
	}
	err := fmt.Errorf("chatd-egress does not carry for %d chats, whose connections wait; %s: %w",
		len(lost), lost[0], why)
	return errors.Join(err, secrets)
}

func (g *Gateway) retrySecrets(ctx context.Context, conn *uplink.Conn) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	if g.secretsLost != nil {
		g.secretsLost = g.tellSecrets(ctx, conn)
	}
	return g.secretsLost
}

// retryChat tells of one chat, if it is open and not carried for.
func (g *Gateway) retryChat(ctx context.Context, conn *uplink.Conn, id chat.ID) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	h, err := g.chatOf(id)
	if err != nil || h.lost == nil {
		return nil // it is closed, or carried for
	}
	before := h.lost
	if h.lost = g.renew(ctx, conn, h); h.lost != nil && errors.Is(before, errNotYet) {
		g.opt.Log.Error("a chat has no way out", "chat", id, "why", h.lost)
	}
	return h.lost
}

// openChats are the chats that are open, in an order.
func (g *Gateway) openChats() []chat.ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.chats))
}
