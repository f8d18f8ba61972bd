package api

import (
	"context"
	"net/url"

	"github.com/chatd/chatd/chat"
)

// AddSchedule is POST /v1/chats/{id}/schedules.
func (c *Client) AddSchedule(ctx context.Context, id chat.ID, spec chat.ScheduleSpec) (out chat.Schedule, err error) {
	err = c.doID(ctx, "POST", id, "/schedules", spec, &out)
	return out, err
}

// Schedules is GET /v1/chats/{id}/schedules.
func (c *Client) Schedules(ctx context.Context, id chat.ID) (out chat.Schedules, err error) {
	err = c.doID(ctx, "GET", id, "/schedules", nil, &out)
	return out, err
}

// Schedule is GET /v1/chats/{id}/schedules/{schedule}.
func (c *Client) Schedule(ctx context.Context, id chat.ID, schedule string) (out chat.Schedule, err error) {
	if err := chat.CheckName("schedule", schedule); err != nil {
		return out, err
	}
	err = c.doID(ctx, "GET", id, "/schedules/"+url.PathEscape(schedule), nil, &out)
	return out, err
}

// RemoveSchedule is DELETE /v1/chats/{id}/schedules/{schedule}.
func (c *Client) RemoveSchedule(ctx context.Context, id chat.ID, schedule string) error {
	if err := chat.CheckName("schedule", schedule); err != nil {
		return err
	}
	return c.doID(ctx, "DELETE", id, "/schedules/"+url.PathEscape(schedule), nil, nil)
}
