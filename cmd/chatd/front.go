package main

import "github.com/urfave/cli/v2"

// frontCommand is not for people: chatd-root starts it.
func frontCommand() *cli.Command {
	c := command("front", func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		return runFront(c.Context)
	})
	c.Hidden = true
	return c
}
