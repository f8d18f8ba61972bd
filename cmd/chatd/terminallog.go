package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func logCommand() *cli.Command {
	return command("log", printLog,
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on as the terminal prints"},
		&cli.BoolFlag{Name: "egress", Usage: "where the chat connected, and what was refused"},
		&cli.BoolFlag{Name: "text", Usage: "the text that a terminal would show"},
		&cli.Int64Flag{Name: "since", Usage: "from this `CURSOR` on, which --json and send --wait say",
			Value: -1, DefaultText: "all that is kept"},
	)
}

func printLog(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
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
