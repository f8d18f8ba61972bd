package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Runs are runs without their streams.
type Runs interface {
	// StartRun starts a background run, and returns once it has started.
	StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error)
	// Runs lists the runs in progress and the background runs that are kept.
	Runs(ctx context.Context, id chat.ID) (chat.Runs, error)
	// Processes lists all processes in the chat; none while it is asleep.
	Processes(ctx context.Context, id chat.ID) (chat.Processes, error)
	// EndRun ends a run and returns when none of its processes is left. A run of another chat is
	// [chat.ErrNotFound], as one that does not exist.
	EndRun(ctx context.Context, id chat.ID, run string) error
	// SignalRun sends a signal to every process of a run.
	SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error
}

type (
	inRun struct {
		Run    string         `json:"run"`
		Signal chat.RunSignal `json:"signal,omitzero"`
		Last   bool           `json:"last,omitempty"`
	}
	// namedRun carries the paths that the front found in a command: the API's JSON has no field for
	// them.
	namedRun struct {
		chat.RunSpec
		Named []chat.NamedPath `json:"named,omitempty"`
	}
)

func (n namedRun) spec() chat.RunSpec {
	s := n.RunSpec
	s.Named = n.Named
	return s
}

var (
	startRun = verbFunc("start_run", func(ctx context.Context, c *call, a namedRun) (chat.Run, error) {
		return c.root.StartRun(ctx, c.Chat, a.spec())
	})
	runs      = chatVerb("runs", Root.Runs)
	processes = chatVerb("processes", Root.Processes)
	endRun    = chatOrder("run_end", Root.EndRun)
	signalRun = verbFunc("signal_run", func(ctx context.Context, c *call, a inRun) (nothing, error) {
		return nothing{}, c.root.SignalRun(ctx, c.Chat, a.Run, a.Signal)
	})
)

// Runs lists the runs in progress and the background runs that are kept.
func (c Calls) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) { return runs.call(ctx, c, id) }

// Processes lists all processes in a chat.
func (c Calls) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	return processes.call(ctx, c, id)
}

// EndRun ends a run and returns when none of its processes is left.
func (c Calls) EndRun(ctx context.Context, id chat.ID, run string) error {
	return endRun.order(ctx, c, id, run)
}

func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	return startRun.call(ctx, c.Calls, id, namedRun{spec, spec.Named})
}

func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	return signalRun.order(ctx, c.Calls, id, inRun{Run: run, Signal: s})
}
