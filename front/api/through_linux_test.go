package api

import (
	"context"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/verbs"
)

// The server is tested as it runs: its calls go through the broker.
func init() {
	through = func(t *testing.T, c verbs.Chats, nameOf func(uint32) (string, error)) verbs.Chats {
		root, front, err := broker.Pair()
		if err != nil {
			t.Fatal(err)
		}
		s, err := broker.NewServer(root, broker.ServerOptions{Root: rootOf{c.(checkedBase), apitest.Streams{Of: c}, apitest.FileTools{Of: c}}, NameOf: nameOf, Log: slog.New(slog.DiscardHandler)})
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
		return clockless{clientOf{client}, runs.NewStreams(client), runs.NewTools(client)}
	}
}

// clockless is the front without the clock of schedules and the checks of commands.
type clockless struct {
	clientOf
	*runs.Streams
	*runs.Tools
}

// clientOf embeds the client one level deeper, so that the methods of Streams and Tools win.
type clientOf struct{ *broker.Client }

// rootOf is chatd-root with chats that answer runs with texts.
type rootOf struct {
	checkedBase
	apitest.Streams
	apitest.FileTools
}

type checkedBase interface {
	verbs.Base
	verbs.Checks
}

// AddSchedule leaves the next time to the Memory.
func (c clockless) AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error) {
	return c.PutSchedule(ctx, id, chat.NewSchedule{Spec: spec})
}
