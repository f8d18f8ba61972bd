package main

import (
	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/api"
)

func sleepCommand() *cli.Command {
	return &cli.Command{
		Name:        "sleep",
		Usage:       "end a chat's processes and keep its home",
		ArgsUsage:   "CHAT",
		Description: "   chatd sleep CHAT",
		Action:      func(c *cli.Context) error { return change(c, "putting to sleep", (*api.Client).Sleep) },
	}
}
