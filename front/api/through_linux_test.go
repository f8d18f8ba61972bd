package api

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// The server is tested as it runs: package runs makes its calls, through the broker.
func init() {
	through = func(t *testing.T, below any, nameOf func(uint32) (string, error)) verbs.Chats {
		root, front, err := broker.Pair()
		must.Do(t, err)
		s := must.Get(broker.NewServer(root, broker.ServerOptions{
			Root: below.(verbs.Root), NameOf: nameOf, Log: slog.New(slog.DiscardHandler),
		}))(t)
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(context.Background()) }()
		t.Cleanup(func() {
			expect.NoError(t, errors.Join(s.Close(), <-ended))
		})
		c := must.Get(broker.NewClient(front))(t)
		chats := must.Get(runs.Open(t.Context(), c, runs.Options{}))(t)
		t.Cleanup(chats.Close)
		return chats
	}
}
