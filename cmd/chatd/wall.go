package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/config/configfile"
)

// raiseWall makes the packet rules stand; the Linux side sets it.
var raiseWall = func(context.Context, configfile.Flags) error {
	return fmt.Errorf("cannot raise the wall: chatd's walls are made by the Linux kernel: %w", chat.ErrUnsupported)
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
	cfg, err := configfile.Load(flags)
	if err != nil {
		return err
	}
	if err := raiseWall(c.Context, flags); err != nil {
		return err
	}
	return answer(c, wallAnswer{cfg.UIDs}, nil, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "uids %d-%d are walled\n", cfg.UIDs.Low, cfg.UIDs.High)
		return err
	})
}
