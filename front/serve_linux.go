package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/front/mcp"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
)

func serverOptions(
	chats verbs.Chats, nameOf func(uint32) (string, error), s broker.Settings,
	version string, log *slog.Logger,
) api.ServerOptions {
	return api.ServerOptions{
		Chats: chats, Operators: s.Operators, Bridges: s.Bridges, NameOf: nameOf, Log: log,
		Version: version, MaxFile: s.MaxFile, MaxStreams: s.MaxStreams,
		MCP: mcp.NewWeb(version).Handler,
	}
}

// serve answers on l until ctx ends, and then lets requests finish for as long as grace. It
// cuts off those that are left then.
func serve(ctx context.Context, l net.Listener, o api.ServerOptions, grace time.Duration) error {
	srv := api.NewServer(o)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := srv.Shutdown(end)
	if errors.Is(err, context.DeadlineExceeded) {
		o.Log.Warn("requests were cut off", "after", grace.Round(time.Millisecond))
		err = nil
	}
	return errors.Join(err, <-ended)
}
