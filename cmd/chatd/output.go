package main

import (
	"context"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

// answer writes v as JSON with --json, else what people calls for. It returns err if there is one,
// and writes nothing.
func answer(c *cli.Context, v any, err error, people func(io.Writer) error) error {
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printer.JSON(c.App.Writer, v)
	}
	return people(c.App.Writer)
}

// onChat is a command about one CHAT: it asks the daemon, and people get the answer. what is shown
// while it lasts.
func onChat[R any](
	what string, ask func(*client.Client, context.Context, chat.ID) (R, error),
	people func(io.Writer, R) error,
) cli.ActionFunc {
	return func(c *cli.Context) error {
		id, err := oneChat(c)
		if err != nil {
			return err
		}
		done := progress(c, what)
		v, err := ask(daemon(c), c.Context, id)
		done()
		return answer(c, v, err, func(w io.Writer) error { return people(w, v) })
	}
}

// progress shows on a terminal that something is under way, until the returned
// func is called. NO_COLOR or TERM=dumb means a plain line without movement.
func progress(c *cli.Context, what string) (done func()) {
	return printer.Progress(c.App.ErrWriter, what, plainProgress())
}

// plainProgress reports a terminal that wants no movement.
func plainProgress() bool {
	return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
}
