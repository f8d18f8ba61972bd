package main

import "github.com/urfave/cli/v2"

// frontCommand is not for people: chatd-root starts it.
func frontCommand() *cli.Command {
	return &cli.Command{
		Name:   "front",
		Usage:  "answer what callers ask, for chatd-root, which starts this without a privilege",
		Hidden: true,
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			return runFront(c.Context)
		},
	}
}
