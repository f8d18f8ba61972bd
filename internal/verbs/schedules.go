package verbs

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Schedules keeps a chat's scheduled runs.
type Schedules interface {
	// Schedules lists a chat's schedules, with how the last run of each went.
	Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error)
	// Schedule returns one of them.
	Schedule(ctx context.Context, id chat.ID, schedule string) (chat.Schedule, error)
	// RemoveSchedule removes one. Its current run continues.
	RemoveSchedule(ctx context.Context, id chat.ID, schedule string) error
}

var scheduleRows = []Row{
	{Route: Route{"add_schedule", "POST", "/v1/chats/{id}/schedules", Bridges, JSON, 201,
		"Have a chat run a command by the clock."},
		Types: typesOf[chat.ScheduleSpec, chat.Schedule], Front: Bind(Chats.AddSchedule)},
}

var (
	schedules = add(Route{"list_schedules", "GET", "/v1/chats/{id}/schedules", Bridges, Nothing, 200,
		"List a chat's schedules, with how the last run of each went."}, OfChat(Base.Schedules))
	schedule = add(Route{"show_schedule", "GET", "/v1/chats/{id}/schedules/{schedule}", Bridges, Nothing, 200,
		"Show one schedule."}, Base.Schedule)
	removeSchedule = add(Route{"remove_schedule", "DELETE", "/v1/chats/{id}/schedules/{schedule}",
		Bridges, Nothing, 204,
		"Remove a schedule; a run of it that is under way goes on."}, Order(Base.RemoveSchedule))
)

func (c Calls) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	return schedules.Of(ctx, c, id)
}

func (c Calls) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	return schedule.Call(ctx, c, id, name)
}

func (c Calls) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	return removeSchedule.Do(ctx, c, id, name)
}

// AddSchedule adds a command that the chat runs at given times.
func (c FrontCalls) AddSchedule(
	ctx context.Context, id chat.ID, spec chat.ScheduleSpec,
) (chat.Schedule, error) {
	return Verb[chat.ScheduleSpec, chat.Schedule]("add_schedule").Call(ctx, c.Calls, id, spec)
}
