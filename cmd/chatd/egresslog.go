package main

import (
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

// egressPoll is how often chatd log --egress -f asks.
const egressPoll = time.Second

func printEgressLog(c *cli.Context, id chat.ID) error {
	if c.Bool("text") || c.IsSet("since") {
		return chat.Invalid("cannot use --egress with --text or --since")
	}
	if c.Bool("follow") {
		return followEgress(c, id)
	}
	l, err := daemon(c).EgressLog(c.Context, id)
	return answer(c, l, err, printer.EgressLog(l))
}

// followEgress prints what is there and what comes, until it is interrupted or the chat is reaped.
func followEgress(c *cli.Context, id chat.ID) error {
	tick := time.NewTicker(egressPoll)
	defer tick.Stop()
	seen, open := egressSeen{}, openSeen{}
	for {
		l, err := daemon(c).EgressLog(c.Context, id)
		if err != nil && c.Context.Err() == nil {
			return err
		}
		if err == nil {
			err = printNewer(c, seen.newer(l.Entries), open.newer(l.Open.Connections))
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

// printNewer prints entries, and connections that have begun.
func printNewer(c *cli.Context, entries []chat.EgressEvent, open []chat.EgressConnection) error {
	line := func(v any, text string) error {
		if c.Bool("json") {
			return printer.JSONLine(c.App.Writer, v)
		}
		return printer.Write(c.App.Writer, text)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, line(e, printer.EgressLine(e)))
	}
	for _, o := range open {
		errs = append(errs, line(o, printer.EgressOpenLine(o)))
	}
	return errors.Join(errs...)
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

// openKey is a connection that is open.
type openKey struct {
	since int64
	to    string
}

// openSeen are the open connections of the last answer.
type openSeen map[openKey]bool

// newer returns those that were not open before.
func (s *openSeen) newer(open []chat.EgressConnection) (out []chat.EgressConnection) {
	now := openSeen{}
	for _, c := range open {
		key := openKey{c.Since.UnixNano(), c.To()}
		if now[key] = true; !(*s)[key] {
			out = append(out, c)
		}
	}
	*s = now
	return out
}
