package api

import (
	"context"

	"github.com/chatd/chatd/chat"
)

type (
	addScheduleInput struct {
		ID   string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Body chat.ScheduleSpec
	}
	scheduleInput struct {
		ID       string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Schedule string `path:"schedule" maxLength:"64" doc:"The schedule's id."`
	}
)

func (s *Server) addSchedule(ctx context.Context, in *addScheduleInput) (*bodyOf[chat.Schedule], error) {
	return byID(ctx, &idInput{ID: in.ID}, func(ctx context.Context, id chat.ID) (chat.Schedule, error) {
		return s.opt.Chats.AddSchedule(ctx, id, in.Body)
	})
}

func (s *Server) listSchedules(ctx context.Context, in *idInput) (*bodyOf[chat.Schedules], error) {
	return byID(ctx, in, s.opt.Chats.Schedules)
}

func (s *Server) showSchedule(ctx context.Context, in *scheduleInput) (*bodyOf[chat.Schedule], error) {
	return byID(ctx, &idInput{ID: in.ID}, func(ctx context.Context, id chat.ID) (chat.Schedule, error) {
		return s.opt.Chats.Schedule(ctx, id, in.Schedule)
	})
}

func (s *Server) removeSchedule(ctx context.Context, in *scheduleInput) (*emptyOutput, error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.opt.Chats.RemoveSchedule(ctx, id, in.Schedule)
}
