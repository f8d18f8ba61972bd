package main

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

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

// progress shows on a terminal that something is under way, until the returned
// func is called. NO_COLOR or TERM=dumb means a plain line without movement.
func progress(c *cli.Context, what string) (done func()) {
	return printer.Progress(c.App.ErrWriter, what, plainProgress())
}

// plainProgress reports a terminal that wants no movement.
func plainProgress() bool {
	return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
}
