package main

import (
	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/front/mcp"
)

func serveMCP(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	return mcp.Serve(c.Context, daemon(c), id, version, c.App.Reader, c.App.Writer)
}
