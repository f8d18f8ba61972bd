package gateway

import (
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/uplink"
)

const (
	// maxReports is how many reports are taken immediately, then one each time that reportEvery has
	// passed. chatd-egress makes 40 a second at most, and one for each chat that ends.
	maxReports  = 1000
	reportEvery = 20 * time.Millisecond
	// maxAhead is how far the clock of a report may be ahead: the host has one clock, which may be
	// set.
	maxAhead = time.Minute
)

func newReports() *quota.Allowance {
	return quota.NewAllowance(maxReports, reportEvery, time.Now)
}

// takeEvents checks a report of chatd-egress, which may be taken over, and passes it on. A chat
// that is being closed is heard to its end; what is of no open chat is passed over, for the chat
// may have gone just now.
func (g *Gateway) takeEvents(c uplink.Call) error {
	if n := len(c.Events); n == 0 || n > uplink.MaxEvents {
		return fmt.Errorf("cannot take a report of %d events: want 1 to %d: %w",
			n, uplink.MaxEvents, chat.ErrInvalid)
	}
	latest := time.Now().Add(maxAhead)
	for _, e := range c.Events {
		if err := e.Validate(); err != nil {
			return fmt.Errorf("cannot take an event: %w", err)
		}
		if e.Until.After(latest) {
			return fmt.Errorf("cannot take an event of %v: it is not over: %w",
				e.Until, chat.ErrInvalid)
		}
	}
	events, err := g.ofOpen(c.Events)
	if err != nil {
		return err
	}
	for id, of := range events {
		g.opt.Events(id, of)
	}
	return nil
}

// ofOpen returns the events of chats that are open, by chat.
func (g *Gateway) ofOpen(events []uplink.Event) (map[chat.ID][]chat.EgressEvent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reports.Take() {
		return nil, fmt.Errorf("cannot take so many reports: %w", chat.ErrBusy)
	}
	of := map[chat.ID][]chat.EgressEvent{}
	for _, e := range events {
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
