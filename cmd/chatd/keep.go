package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/keeper"
)

func keepCommand() *cli.Command {
	return &cli.Command{
		Name:  "keep",
		Usage: "keep the file rules of sessions, beside chatd serve",
		Description: "The keeper of file rules: chatd serve starts it where none answers, and with systemd it\n" +
			"is a unit of its own. It goes on while chatd is down. It needs root.\n\n" +
			"   chatd keep --dir /run/chatd/keeper",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Value: "/run/chatd/keeper", Usage: "`DIRECTORY` of its socket and of what it notes"},
			&cli.BoolFlag{Name: "idle-end", Hidden: true},
			&cli.BoolFlag{Name: "worker", Hidden: true},
		},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			endAtOnce() // there is nothing to tidy up, and systemd would wait for it
			return keeper.Run(keeper.Options{Dir: c.String("dir"), Worker: c.Bool("worker"), IdleEnd: c.Bool("idle-end"), Errs: os.Stderr})
		},
	}
}
