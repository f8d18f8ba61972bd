package api

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// The rows about a chat's schedules.
var (
	addSchedule    = route{"POST", "/v1/chats/{id}/schedules", bridges, jsonBody, "add_schedule", 201, "Have a chat run a command by the clock.", of(Chats.AddSchedule)}
	listSchedules  = route{"GET", "/v1/chats/{id}/schedules", bridges, nothing, "list_schedules", 200, "List a chat's schedules, with how the last run of each went.", plain(Chats.Schedules)}
	showSchedule   = route{"GET", "/v1/chats/{id}/schedules/{schedule}", bridges, nothing, "show_schedule", 200, "Show one schedule.", about(scheduleOf)}
	removeSchedule = route{"DELETE", "/v1/chats/{id}/schedules/{schedule}", bridges, nothing, "remove_schedule", 204, "Remove a schedule; a run of it that is under way goes on.", doing(removeScheduleOf)}

	scheduleRoutes = []route{addSchedule, listSchedules, showSchedule, removeSchedule}
)

type inSchedule struct {
	InChat
	Schedule string `path:"schedule" maxLength:"64" doc:"The schedule's id."`
}

// AddSchedule is POST /v1/chats/{id}/schedules.
func (c *Client) AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (chat.Schedule, error) {
	return askFor[chat.Schedule](ctx, c, addSchedule, target{chat: id}, spec)
}

func scheduleOf(ctx context.Context, c Chats, id chat.ID, in *inSchedule) (chat.Schedule, error) {
	return c.Schedule(ctx, id, in.Schedule)
}

func removeScheduleOf(ctx context.Context, c Chats, id chat.ID, in *inSchedule) error {
	return c.RemoveSchedule(ctx, id, in.Schedule)
}
