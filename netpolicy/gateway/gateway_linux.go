package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
)

// Options is what a [Gateway] needs to know.
type Options struct {
	// Dir is root's directory of the socket of chatd-egress and of the chats' names.
	Dir string
	// Program is the chatd-egress binary, which Follow starts if none answers.
	Program string
	// UID and GID are the user that it runs as, DNSUID that of sockets to DNS servers; no chat
	// has them.
	UID, GID, DNSUID uint32
	// MaxFlows is how many connections all chats begin in two minutes; 0: by the host's table.
	MaxFlows int
	// Unit: systemd starts it, by chatd-egress.socket.
	Unit bool
	// Servers are the DNS servers that it asks for the names of chats; see [Gateway.SetServers].
	Servers []netip.AddrPort
	// Secrets tells what chats may use and not read.
	Secrets SecretOptions
	// Bound gives the started process a cgroup of its own.
	Bound func(pid int) error
	// Report is told what keeps chatd-egress from answering, or from carrying for a chat, and nil
	// when it does.
	Report func(error)
	// Events gets what chatd-egress reports of an open chat, from several goroutines.
	Events func(chat.ID, []chat.EgressEvent)
	Log    *slog.Logger
}

// Gateway is chatd-root's side of chatd-egress. Its methods are safe for concurrent use.
type Gateway struct {
	opt  Options
	wake chan struct{} // has an element when a chat was opened
	lost chan struct{} // has an element when chatd-egress does not carry for an open chat
	said string        // Follow's: what was reported last
	peer int           // Follow's: the pid of the chatd-egress that was dialled last, or 0

	telling sync.Mutex // held while chatd-egress is told of a chat, so that it hears in order
	// secretsLost is why chatd-egress has not the secrets as they are; of telling.
	secretsLost error

	resolving chan struct{} // an element for each name that is looked up
	flows     *flows

	taking sync.Mutex // held while a report is taken
	taken  uint64     // the number of the last report; of taking

	mu      sync.Mutex
	servers []netip.AddrPort
	secrets knownSecrets
	issues  *quota.Allowance
	chats   map[chat.ID]*openChat
	closing chat.ID      // the one that chatd-egress is told to close
	conn    *uplink.Conn // nil while chatd-egress does not answer
	reports *quota.Allowance
}

// New returns a gateway. It does nothing before its methods are called.
func New(opt Options) *Gateway {
	return &Gateway{opt: opt, servers: opt.Servers, chats: map[chat.ID]*openChat{},
		resolving: make(chan struct{}, maxResolving), flows: newFlows(opt.MaxFlows, time.Now),
		issues: quota.NewAllowance(issuesAtOnce, issueEvery, time.Now),
		wake:   make(chan struct{}, 1), lost: make(chan struct{}, 1),
		reports: quota.NewAllowance(maxReports, reportEvery, time.Now)}
}

// tellTimeout bounds one answer of chatd-egress about a chat.
const tellTimeout = 5 * time.Second

// Open sets up the network of a session that begins, of which init is a process, and has
// chatd-egress carry its connections. Where chatd-egress does not answer they wait for it.
func (g *Gateway) Open(ctx context.Context, c Chat, init *sys.ProcessHandle) error {
	h, err := g.makeNetwork(c, init)
	if err != nil {
		return fmt.Errorf("cannot open the network of chat %s: %w", c.ID, err)
	}
	g.telling.Lock()
	defer g.telling.Unlock()
	err = g.keep(h)
	g.hand(ctx, h)
	return err
}

// makeNetwork makes the network of a session, and its sockets.
func (g *Gateway) makeNetwork(c Chat, init *sys.ProcessHandle) (*openChat, error) {
	h := &openChat{Chat: c}
	var err error
	if h.ns, err = netns.Open(init); err != nil {
		return nil, err
	}
	if err = h.ns.Configure(); err == nil {
		h.tcp, h.udp, err = h.ns.Listen()
	}
	if err == nil {
		h.names, err = g.newNames(c.ID)
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// Adopt holds the network of a session that an earlier chatd-root opened. It is for chatd's start,
// before Follow: chatd-egress keeps the connections of those chats alone that are adopted by then.
func (g *Gateway) Adopt(c Chat, init *sys.ProcessHandle) error {
	ns, err := netns.Open(init)
	if err == nil { // it may have been a network with no way out
		err = ns.Configure()
	}
	if err != nil {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
		return fmt.Errorf("cannot hold the network of chat %s: %w", c.ID, err)
	}
	return g.keep(&openChat{Chat: c, ns: ns})
}

// Change replaces where an open chat may connect. What it is connected to and may no longer be is
// cut before Change returns. Where chatd-egress does not answer, the error is a [chat.ErrBusy]: it
// is told when it does.
func (g *Gateway) Change(ctx context.Context, id chat.ID, allow []chat.Allow) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	h, conn := g.look(id)
	if h == nil {
		return nil
	}
	h.Allow = allow
	err := uplink.ErrGone
	switch {
	case h.lost == nil:
		err = g.tell(ctx, conn, g.changed(id, allow))
	case conn != nil && errors.Is(h.lost, errNotYet):
		h.lost = g.renew(ctx, conn, h)
		err = h.lost
	}
	if errors.Is(err, uplink.ErrGone) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("cannot tell chatd-egress where chat %s may connect, which it hears when it answers: %w: %w",
			id, err, chat.ErrBusy)
	}
	return err
}

// Close ends the connections of a chat and gives up what is held for it. It is for a session that
// has ended, and does nothing for a chat that is not open. A chatd-egress that does not answer
// hears of it when it does.
func (g *Gateway) Close(ctx context.Context, id chat.ID) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	h, conn := g.chats[id], g.conn
	delete(g.chats, id)
	g.closing = id
	g.mu.Unlock()
	defer g.closed()
	err := removeNames(g.names(id))
	if h == nil {
		return err
	}
	err = errors.Join(err, h.close())
	if why := g.tell(ctx, conn, uplink.Call{Verb: uplink.Close, Chat: id}); why != nil {
		g.tellLost(h)
		g.opt.Log.Warn("chatd-egress hears later that a session has ended", "chat", id, "why", why)
	}
	return err
}

// SetServers replaces the DNS servers.
func (g *Gateway) SetServers(ctx context.Context, servers []netip.AddrPort) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	g.servers = servers
	conn := g.conn
	g.mu.Unlock()
	if conn == nil {
		return nil
	}
	return g.tell(ctx, conn, uplink.Call{Verb: uplink.Hello, Upstreams: servers})
}

// keep registers a chat. One that is registered already is given up.
func (g *Gateway) keep(h *openChat) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if old := g.chats[h.ID]; old != nil {
		err = old.close()
	}
	g.chats[h.ID] = h
	select {
	case g.wake <- struct{}{}:
	default: // it is awake
	}
	return err
}

// hand gives the sockets of a chat to chatd-egress. If that fails, Follow does it for the next one.
// The caller holds telling.
func (g *Gateway) hand(ctx context.Context, h *openChat) {
	_, conn := g.look(h.ID)
	if conn == nil {
		return
	}
	if h.lost = g.open(ctx, conn, h); h.lost != nil {
		g.opt.Log.Warn("connections of a chat wait", "chat", h.ID, "why", h.lost)
		g.tryAgain()
	}
}

// tryAgain has Follow tell chatd-egress what it has missed.
func (g *Gateway) tryAgain() {
	select {
	case g.lost <- struct{}{}:
	default: // Follow has heard
	}
}

func (g *Gateway) open(ctx context.Context, conn *uplink.Conn, h *openChat) error {
	call := uplink.Call{Verb: uplink.Open, Chat: h.ID, Owner: h.Owner, Allow: h.Allow,
		Grants: g.opt.Secrets.Grants(h.ID)}
	err := g.tell(ctx, conn, call, h.tcp, h.udp, h.names)
	h.handed = err == nil
	return err
}

// tell makes one call. A chatd-egress that does not answer in time is given up: what it was told is
// unknown, and Follow begins again.
func (g *Gateway) tell(ctx context.Context, conn *uplink.Conn, c uplink.Call, files ...*os.File) error {
	_, err := call(context.WithoutCancel(ctx), conn, tellTimeout, c, files...)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot tell chatd-egress to %s chat %s: %w", c.Verb, c.Chat, err)
	}
	return nil
}

// call makes one call within a time. conn is nil while chatd-egress does not answer.
func call(
	ctx context.Context, conn *uplink.Conn, timeout time.Duration, c uplink.Call, files ...*os.File,
) (uplink.Answer, error) {
	if conn == nil {
		return uplink.Answer{}, uplink.ErrGone
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, passed, err := conn.Call(ctx, c, files...)
	return a, errors.Join(err, uplink.CloseFiles(passed))
}

// Shut gives up what is held. chatd-egress goes on.
func (g *Gateway) Shut() error {
	g.telling.Lock() // what is passed on is not closed meanwhile
	defer g.telling.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, h := range g.chats {
		errs = append(errs, h.close())
	}
	g.chats = map[chat.ID]*openChat{}
	return errors.Join(errs...)
}
