package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/uplink"
)

// introduce tells chatd-egress which chats are awake. It closes those that it has from an earlier
// chatd-root and that are not, and leaves the connections of the others alone.
func (g *Gateway) introduce(ctx context.Context, conn *uplink.Conn) error {
	servers := g.dnsServers()
	known, err := hello(ctx, conn, servers)
	if err != nil {
		return err
	}
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	chats := maps.Clone(g.chats)
	g.conn = conn
	now := g.servers
	g.mu.Unlock()
	if !slices.Equal(now, servers) { // replaced while nobody was there to be told
		if err := g.tell(ctx, conn, uplink.Call{Verb: uplink.Hello, Upstreams: now}); err != nil {
			return err
		}
	}
	g.secretsLost = g.tellSecrets(ctx, conn)
	for _, id := range known {
		if chats[id] == nil {
			if err := g.tell(ctx, conn, uplink.Call{Verb: uplink.Close, Chat: id}); err != nil {
				return err
			}
		}
	}
	for id, h := range chats {
		if !slices.Contains(known, id) {
			g.tellLost(h) // it is another chatd-egress
		}
		h.known = slices.Contains(known, id) && (h.handed || h.tcp == nil)
		if h.lost = g.renew(ctx, conn, h); h.lost != nil {
			g.opt.Log.Error("a chat has no way out", "chat", id, "why", h.lost)
		}
	}
	return nil
}

func (g *Gateway) dnsServers() []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.servers
}

// hello makes the first call, and returns the chats that chatd-egress carries for.
func hello(ctx context.Context, conn *uplink.Conn, servers []netip.AddrPort) ([]chat.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	a, passed, err := conn.Call(ctx, uplink.Call{Verb: uplink.Hello, Upstreams: servers})
	return a.Chats, errors.Join(err, closeFiles(passed))
}

// renew tells chatd-egress of a chat that it may know. The caller holds telling.
func (g *Gateway) renew(ctx context.Context, conn *uplink.Conn, h *held) error {
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
			return errors.Join(err, closeFiles([]*os.File{tcp, udp}))
		}
		h.tcp, h.udp, h.names = tcp, udp, names
	}
	return g.open(ctx, conn, h)
}

// retry tells chatd-egress again of the chats that it does not carry for, and returns why some
// still are such.
func (g *Gateway) retry(ctx context.Context, conn *uplink.Conn) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	chats := maps.Clone(g.chats)
	g.mu.Unlock()
	if g.secretsLost != nil {
		g.secretsLost = g.tellSecrets(ctx, conn)
	}
	var lost []chat.ID
	for id, h := range chats {
		if h.lost == nil {
			continue
		}
		if h.lost = g.renew(ctx, conn, h); h.lost != nil {
			lost = append(lost, id)
		}
	}
	if len(lost) == 0 {
		return g.secretsLost
	}
	slices.Sort(lost)
	err := fmt.Errorf("chatd-egress does not carry for %d chats, whose connections wait; %s: %w",
		len(lost), lost[0], chats[lost[0]].lost)
	return errors.Join(err, g.secretsLost)
}
