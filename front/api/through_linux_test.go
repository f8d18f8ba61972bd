package api

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
)

// The server is tested as it runs: package runs makes its calls, through the broker.
func init() {
	through = func(t *testing.T, below any, nameOf func(uint32) (string, error)) verbs.Chats {
		root, front, err := broker.Pair()
		if err != nil {
			t.Fatal(err)
		}
		s, err := broker.NewServer(root, broker.ServerOptions{
			Root: below.(verbs.Root), NameOf: nameOf, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(context.Background()) }()
		t.Cleanup(func() {
			if err := errors.Join(s.Close(), <-ended); err != nil {
				t.Error(err)
			}
		})
		c, err := broker.NewClient(front)
		if err != nil {
			t.Fatal(err)
		}
		chats, err := runs.Open(t.Context(), c, runs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(chats.Close)
		return chats
	}
}
