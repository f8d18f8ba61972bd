package main

import (
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/mcp"
	"github.com/chatd/chatd/internal/config/configfile"
)

// compileCommand is not for people: chatd-root starts it, for what it must not parse itself.
func compileCommand() *cli.Command {
	c := command("compile", func(c *cli.Context) error {
		if err := confineCompile(); err != nil {
			return err
		}
		if err := configfile.Step(c.Args().Slice(), c.App.Reader, c.App.Writer); err != nil {
			if _, werr := io.WriteString(c.App.Writer, err.Error()); werr != nil {
				return werr
			}
			return &exitError{chat.ExitCode(err)}
		}
		return nil
	})
	c.Hidden = true
	return c
}

// frontCommand is not for people: chatd-root starts it.
func frontCommand() *cli.Command {
	c := command("front", alone(func(c *cli.Context) error { return runFront(c.Context) }))
	c.Hidden = true
	return c
}

func serveMCP(c *cli.Context, id chat.ID) error {
	return mcp.Serve(c.Context, daemon(c), id, version, c.App.Reader, c.App.Writer)
}
