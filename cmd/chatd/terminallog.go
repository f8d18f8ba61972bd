package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func logCommand() *cli.Command {
	return command("log", ofChat(printLog),
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on as the terminal prints"},
		boolFlag("egress", "where the chat connected, and what was refused"),
		boolFlag("text", "the text that a terminal would show"),
		&cli.Int64Flag{Name: "since", Usage: "from this `CURSOR` on, which --json and send --wait say",
			Value: -1, DefaultText: "all that is kept"},
	)
}

func printLog(c *cli.Context, id chat.ID) error {
	if c.Bool("egress") {
		return printEgressLog(c, id)
	}
	since := c.Int64("since")
	if since < 0 && c.IsSet("since") {
		return chat.Invalid("cannot use --since %d: want a cursor, a number from 0", since)
	}
	p := logPrinter{c: c, text: printer.LogWriter(c.App.Writer)}
	if c.Bool("text") && (c.Bool("follow") || c.Bool("json")) {
		return chat.Invalid("cannot use --text with --follow or --json")
	}
	if !c.Bool("follow") && !c.Bool("json") && (c.Bool("text") || printer.IsTerminal(c.App.Writer)) {
		return p.render(id, since)
	}
	var err error
	if c.Bool("follow") {
		err = daemon(c).FollowLog(c.Context, id, since, p.print)
	} else {
		err = pages(c, id, since, p.print)
	}
	if err != nil && c.Context.Err() != nil {
		return nil // interrupted, which is how following ends
	}
	return err
}

// pages reads piece by piece up to what was the end when it began.
func pages(c *cli.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	for end := int64(-1); ; {
		l, err := daemon(c).Log(c.Context, id, since)
		if err != nil {
			return err
		}
		if end < 0 {
			end = l.End
		}
		if err := out(l); err != nil {
			return err
		}
		if since = l.Cursor; since >= end || len(l.Bytes()) == 0 {
			return nil
		}
	}
}

type logPrinter struct {
	c    *cli.Context
	text io.Writer
}

func (p *logPrinter) print(l chat.Log) error {
	if p.c.Bool("json") {
		return printer.JSONLine(p.c.App.Writer, l)
	}
	if l.Lost > 0 {
		fmt.Fprintf(p.c.App.ErrWriter, "chatd: %d bytes before this are not kept any more\n", l.Lost)
	}
	if _, err := p.text.Write(l.Bytes()); err != nil {
		return errors.Join(errors.New("cannot write the log"), err)
	}
	return nil
}

// render prints everything in one step: later output may draw over earlier output.
func (p *logPrinter) render(id chat.ID, since int64) error {
	var all bytes.Buffer
	to := p.text
	p.text = &all
	if err := pages(p.c, id, since, p.print); err != nil {
		return err
	}
	if _, err := io.WriteString(to, printer.Rendered(all.Bytes())); err != nil {
		return fmt.Errorf("cannot write the log: %w", err)
	}
	return nil
}

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
