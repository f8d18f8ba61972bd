package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/config"
)

// raiseWall makes the packet rules stand; the Linux side sets it.
var raiseWall = func(context.Context, config.Flags) error {
	return fmt.Errorf("cannot raise the wall: chatd's walls are made by the Linux kernel: %w", chat.ErrUnsupported)
}

func wallCommand() *cli.Command {
	return &cli.Command{
		Name:  "wall",
		Usage: "raise the packet wall around every uid that chats may have",
		Description: "For boot, before the network is up: from then on a chat's uid reaches nothing but its\n" +
			"own servers, by IPv4 and IPv6, and is refused at once. chatd serve opens what the\n" +
			"profiles name. Beside a running daemon it keeps those and mends what is under them. It\n" +
			"needs root, and no daemon; it waits a minute for the lock of iptables.\n\n" +
			"   chatd wall\n" +
			"   chatd wall --config my.yaml --json",
		Flags:  []cli.Flag{configFlag()},
		Action: wall,
	}
}

// wallAnswer is the answer of wall --json.
type wallAnswer struct {
	UIDs config.UIDRange `json:"uids"`
}

func wall(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	flags, err := configFlags(c)
	if err != nil {
		return err
	}
	cfg, err := config.Load(flags)
	if err != nil {
		return err
	}
	if err := raiseWall(c.Context, flags); err != nil {
		return err
	}
	return answer(c, wallAnswer{cfg.UIDs}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "uids %d-%d are walled\n", cfg.UIDs.Low, cfg.UIDs.High)
		return err
	})
}
