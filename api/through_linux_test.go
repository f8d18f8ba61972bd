package api

import (
	"context"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/broker"
)

// The server is tested as it runs: what it asks for goes through the broker.
func init() {
	through = func(t *testing.T, c Chats, nameOf func(uint32) (string, error)) Chats {
		root, front, err := broker.Pair()
		if err != nil {
			t.Fatal(err)
		}
		s, err := broker.NewServer(root, broker.ServerOptions{Chats: c, NameOf: nameOf, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(context.Background()) }()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		client, err := broker.NewClient(front)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}
