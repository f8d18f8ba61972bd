package verbs

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

var runRows = []Row{
	{Route: Route{"run_show", "GET", "/v1/chats/{id}/runs/{run}", Bridges, Nothing, 200,
		"Show one run, with what it printed so far."},
		Types: typesOf[string, chat.Run], Front: Bind(Chats.ShowRun)},
	{Route: Route{"run_signal", "POST", "/v1/chats/{id}/runs/{run}/signal", Bridges, JSON, 204,
		"Send a signal to every process of a run, or set the size of its terminal."}},
	{Route: Route{"run", "POST", "/v1/chats/{id}/runs", Bridges, JSON, 200,
		"Run one command beside the chat's terminal and wait for its end; with Accept: " +
			"application/x-ndjson, its output comes as it is printed; with background, answer with " +
			"its id (202)."}},
	{Route: Route{"run_output", "GET", "/v1/chats/{id}/runs/{run}/output", Bridges, Nothing, 200,
		"Read what a background run printed, from a cursor on; with Accept: " +
			"application/x-ndjson, follow it to its end."}},
	{Route: Route{"run_stdin", "POST", "/v1/chats/{id}/runs/{run}/stdin", Bridges, Bytes, 204,
		"Send bytes to the standard input of a run that has it open, as they come."}},
}

var (
	runs = add(Route{"runs", "GET", "/v1/chats/{id}/runs", Bridges, Nothing, 200,
		"List the chat's runs: those under way, and the background runs that are kept."}, OfChat(Base.Runs))
	processes = add(Route{"processes", "GET", "/v1/chats/{id}/processes", Bridges, Nothing, 200,
		"List the processes in a chat, with what each takes; one that is asleep has none."},
		OfChat(Base.Processes))
	endRun = add(Route{"run_end", "DELETE", "/v1/chats/{id}/runs/{run}", Bridges, Nothing, 204,
		"End a run: SIGTERM, its grace, then all of it."}, Order(Base.EndRun))
)

func (c Calls) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) { return runs.Of(ctx, c, id) }

func (c Calls) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	return processes.Of(ctx, c, id)
}

func (c Calls) EndRun(ctx context.Context, id chat.ID, run string) error {
	return endRun.Do(ctx, c, id, run)
}

// ShowRun returns one run, with what it printed so far.
func (c FrontCalls) ShowRun(ctx context.Context, id chat.ID, run string) (chat.Run, error) {
	return Verb[string, chat.Run]("run_show").Call(ctx, c.Calls, id, run)
}
