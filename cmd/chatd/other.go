//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/config/configfile"
)

// linuxOnly is the error of what only the host of chatd can do.
func linuxOnly(what string) error {
	return fmt.Errorf("cannot %s on %s: chatd's walls are made by the Linux kernel: %w", what, runtime.GOOS,
		chat.ErrUnsupported)
}

func becomeRoot(configfile.Flags) error { return linuxOnly("serve") }

func runFront(context.Context) error { return linuxOnly("serve") }

func confineCompile() error { return linuxOnly("compile") }

// runRoot finds nothing to check: the host of another system has no sessions.
func runRoot(_ context.Context, verb string, _ configfile.Flags, _ ...string) ([]byte, error) {
	if verb == "check" {
		return []byte("null"), nil
	}
	return nil, linuxOnly(rootVerbs[verb])
}

func countHomes(*cli.Context, []chat.Chat) (map[chat.ID]uint64, error) {
	return nil, linuxOnly("count homes")
}

func scanStrays(
	context.Context, config.Config, chat.StrayRequest, func(chat.StrayLine),
) (chat.StrayEnd, error) {
	return chat.StrayEnd{}, linuxOnly("verify")
}
