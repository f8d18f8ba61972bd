package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/printer"
)

// egressPoll is how often chatd log --egress -f asks.
const egressPoll = time.Second

func printEgressLog(c *cli.Context, id chat.ID) error {
	if c.Bool("text") || c.IsSet("since") {
		return fmt.Errorf("cannot use --egress with --text or --since: %w", chat.ErrInvalid)
	}
	if c.Bool("follow") {
		return followEgress(c, id)
	}
	l, err := client(c).EgressLog(c.Context, id)
	if err != nil {
		return err
	}
	return answer(c, l, func(w io.Writer) error { return printer.EgressLog(w, l) })
}

// followEgress prints what is there and what comes, until it is interrupted or the chat is reaped.
func followEgress(c *cli.Context, id chat.ID) error {
	tick := time.NewTicker(egressPoll)
	defer tick.Stop()
	for seen := (egressSeen{}); ; {
		l, err := client(c).EgressLog(c.Context, id)
		for _, e := range seen.newer(l.Entries) {
			if c.Bool("json") {
				err = printer.JSONLine(c.App.Writer, e)
			} else {
				err = printer.EgressLine(c.App.Writer, e)
			}
			if err != nil {
				return err
			}
		}
		if err != nil && c.Context.Err() == nil {
			return err
		}
		select {
		case <-c.Context.Done():
			return nil // interrupted, which is how following ends
		case <-tick.C:
		}
	}
}

// egressKey is an entry: there is one of each kind and minute.
type egressKey struct {
	chat.EgressKind
	minute int64
}

// egressSeen are the entries of the last answer.
type egressSeen map[egressKey]chat.EgressEvent

// newer returns what is in entries and was not before: of an entry that grew, what came since.
func (s *egressSeen) newer(entries []chat.EgressEvent) (out []chat.EgressEvent) {
	now := egressSeen{}
	for _, e := range entries {
		key := egressKey{e.EgressKind, e.Time.Unix() / 60}
		now[key] = e
		// Fewer than before are other ones: chatd-root is another.
		if old := (*s)[key]; old.Count > 0 && old.Count <= e.Count {
			e.Time = e.Until
			e.Count -= old.Count
			e.Sent -= old.Sent
			e.Received -= old.Received
		}
		if e.Count > 0 {
			out = append(out, e)
		}
	}
	*s = now
	return out
}
