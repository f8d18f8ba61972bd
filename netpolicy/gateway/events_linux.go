package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	// maxReports is how many reports are taken immediately, then one each time that reportEvery has
	// passed. chatd-egress makes 40 a second at most, and one for each chat that ends.
	maxReports  = 1000
	reportEvery = 20 * time.Millisecond
	// maxAhead is how far the clock of a report may be ahead: the host has one clock, which may be
	// set.
	maxAhead = time.Minute
	// maxCarried is more connections and flows than a chat may have.
	maxCarried = 1 << 16
	// askTimeout is how long the caller of Connections waits at most.
	askTimeout = time.Second
	// resolveTimeout is the same of Resolve; chatd-egress gives up a name whose servers are silent
	// a second before.
	resolveTimeout = 5 * time.Second
	// maxResolving is how many names are looked up simultaneously to explain, and maxResolvingOfOne
	// how many of one chat.
	maxResolving, maxResolvingOfOne = 16, 2
	// resolveAgain is when a chatd-egress that begins is asked again.
	resolveAgain = 20 * time.Millisecond
)

// lostWhy is what became of connections that ended with chatd-egress.
const lostWhy = "cut: chatd-egress ended, and what they carried is not known"

// takeEvents takes a report of chatd-egress, which may be taken over, unless it was the last that
// was taken: its answer did not come in time. A chat that is being closed is heard to its end; what
// is of no open chat is passed over, for the chat may have gone just now.
func (g *Gateway) takeEvents(c uplink.Call) error {
	if err := checkReport(c); err != nil {
		return err
	}
	g.taking.Lock()
	defer g.taking.Unlock()
	if c.Report == g.taken {
		return nil
	}
	events, err := g.ofOpen(c)
	if err != nil {
		return err
	}
	for id, of := range events {
		g.opt.Events(id, of)
	}
	g.taken = c.Report
	return nil
}

// checkReport reports what no report of chatd-egress has.
func checkReport(c uplink.Call) error {
	n, of := len(c.Events), len(c.Carried)
	if c.Report == 0 {
		return chat.Invalid("cannot take a report without a number")
	}
	if n+of == 0 || n > uplink.MaxEvents || of > uplink.MaxEvents {
		return chat.Invalid("cannot take a report of %d events and %d chats: want 1 to %d",
			n, of, uplink.MaxEvents)
	}
	latest := time.Now().Add(maxAhead)
	for _, e := range c.Events {
		if err := e.Validate(); err != nil {
			return fmt.Errorf("cannot take an event: %w", err)
		}
		if e.Until.After(latest) {
			return chat.Invalid("cannot take an event of %v: it is not over", e.Until)
		}
	}
	for _, of := range c.Carried {
		if of.Count < 0 || of.Count > maxCarried {
			return chat.Invalid("cannot take %d connections of a chat: want at most %d", of.Count, maxCarried)
		}
	}
	return nil
}

// ofOpen returns the events of chats that are open, by chat, and keeps how many connections they
// have.
func (g *Gateway) ofOpen(c uplink.Call) (map[chat.ID][]chat.EgressEvent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reports.Take() {
		return nil, fmt.Errorf("cannot take so many reports: %w", chat.ErrBusy)
	}
	of := map[chat.ID][]chat.EgressEvent{}
	for _, n := range c.Carried {
		if h := g.chats[n.Chat]; h != nil {
			h.carried = n.Count
		}
	}
	for _, e := range c.Events {
		if g.chats[e.Chat] != nil || e.Chat == g.closing && e.Chat != "" {
			of[e.Chat] = append(of[e.Chat], e.EgressEvent)
		}
	}
	return of, nil
}

// closed says that no chat is being closed any more.
func (g *Gateway) closed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = ""
}

// Connections are what of a chat is carried now; nothing of a chat that is not open.
func (g *Gateway) Connections(ctx context.Context, id chat.ID) chat.EgressOpen {
	h, conn := g.look(id)
	if h == nil {
		return chat.NewEgressOpen(nil)
	}
	a, err := call(ctx, conn, askTimeout, uplink.Call{Verb: uplink.Connections, Chat: id})
	if err == nil && a.Open == nil {
		err = chat.Invalid("cannot use an answer without connections")
	}
	if err == nil {
		err = a.Open.Validate()
	}
	if err != nil {
		open := chat.NewEgressOpen(nil)
		open.Unknown = chat.EgressText("chatd-egress does not answer: " + err.Error())
		return open
	}
	open := *a.Open
	open.Connections = append([]chat.EgressConnection{}, open.Connections...)
	return open
}

// Resolve reports why a name that a chat lists leads to no address now. It is nil for a chat that
// is not open: nobody looks a name up for it. While chatd-egress starts it waits.
func (g *Gateway) Resolve(ctx context.Context, id chat.ID, to chat.Destination) error {
	h, _ := g.look(id)
	if h == nil {
		return nil
	}
	// All calls to chatd-egress share their number: names to explain take few of it.
	select {
	case g.resolving <- struct{}{}:
		defer func() { <-g.resolving }()
	default:
		return fmt.Errorf("cannot look up %s: %d names are looked up already: %w", to.Name(),
			cap(g.resolving), chat.ErrBusy)
	}
	if h.resolving.Add(1) > maxResolvingOfOne {
		h.resolving.Add(-1)
		return fmt.Errorf("cannot look up %s: %d names are looked up for the chat already: %w",
			to.Name(), maxResolvingOfOne, chat.ErrBusy)
	}
	defer h.resolving.Add(-1)
	// A caller that leaves does not end the call at chatd-egress.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTimeout)
	defer cancel()
	for {
		err := g.resolve(ctx, id, to)
		begins := errors.Is(err, uplink.ErrGone) || errors.Is(err, chat.ErrNotFound)
		if !begins || chat.Sleep(ctx, resolveAgain) != nil {
			return err
		}
	}
}

func (g *Gateway) resolve(ctx context.Context, id chat.ID, to chat.Destination) error {
	h, conn := g.look(id)
	if h == nil {
		return nil // it has ended
	}
	if conn == nil {
		return fmt.Errorf("cannot ask chatd-egress: %w", uplink.ErrGone)
	}
	_, err := call(ctx, conn, resolveTimeout, uplink.Call{Verb: uplink.Resolve, Chat: id,
		Host: to.Name(), Port: to.Port, UDP: to.UDP})
	return err
}

// tellLost tells of the connections of a chat that ended with chatd-egress, whose number alone is
// known.
func (g *Gateway) tellLost(h *openChat) {
	g.mu.Lock()
	n := h.carried
	h.carried = 0
	g.mu.Unlock()
	if n == 0 {
		return
	}
	now := time.Now().UTC().Round(0)
	g.opt.Events(h.ID, []chat.EgressEvent{{Time: now, Until: now, Count: int64(n),
		EgressKind: chat.EgressKind{Verdict: chat.EgressAllowed, Why: lostWhy}}})
}
