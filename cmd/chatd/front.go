package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/broker"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/mcp"
)

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

// serveFront answers on l until ctx ends, and then lets requests finish for as long as s says.
// What is left then is cut off.
func serveFront(ctx context.Context, l net.Listener, chats api.Chats, nameOf func(uint32) (string, error), s broker.Settings, log *slog.Logger) error {
	srv := api.NewServer(api.ServerOptions{
		Chats: chats, Operators: s.Operators, Bridges: s.Bridges, NameOf: nameOf, Log: log, Version: version,
		MaxFile: s.MaxFile, MaxStreams: s.MaxStreams, MCP: mcp.NewWeb(version).Handler,
	})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	err := srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests were cut off", "after", s.Grace.Round(time.Millisecond))
		err = nil
	}
	return errors.Join(err, <-ended)
}

// sameVersion refuses to serve for a chatd-root of another version, as half an upgrade leaves.
func sameVersion(s broker.Settings) error {
	if s.Version != version {
		return fmt.Errorf("cannot serve for chatd-root of version %s: this is %s: install both: %w", chat.Quote(s.Version), version, chat.ErrUnsupported)
	}
	return nil
}
