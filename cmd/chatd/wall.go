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

// raiseWall makes the packet rules stand, and returns the uids that they are for; the Linux side sets
// it.
var raiseWall = func(context.Context, configfile.Flags) (config.UIDRange, error) {
	return config.UIDRange{}, fmt.Errorf("cannot raise the wall: chatd's walls are made by the Linux kernel: %w", chat.ErrUnsupported)
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
	uids, err := raiseWall(c.Context, flags)
	if err != nil {
		return err
	}
	return answer(c, wallAnswer{uids}, nil, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "uids %d-%d are walled\n", uids.Low, uids.High)
		return err
	})
}
