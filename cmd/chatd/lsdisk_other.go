//go:build !linux

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

// countHomes cannot: the homes are on the Linux host.
func countHomes(*cli.Context, []chat.Chat) (map[chat.ID]uint64, error) {
	return nil, fmt.Errorf("cannot count homes: they are on the host of chatd, which is Linux: %w",
		chat.ErrUnsupported)
}
