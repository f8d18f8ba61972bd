package api

import (
	"context"
	"net/http"

	"github.com/chatd/chatd/chat"
)

type (
	readRunInput struct {
		InRun
		Cursor string `query:"cursor" maxLength:"64" doc:"Where to begin, as an answer before said; the beginning if absent."`
	}
	signalInput struct {
		InRun
		Body chat.RunSignal
	}
	stdinInput struct {
		InRun
		WithValues
		Close bool `query:"close" doc:"Close standard input after the body."`
	}
)

// run answers when the command has ended, or with its output as it is printed, or immediately with the
// id of a background run.
func (s *Server) run(w http.ResponseWriter, r *http.Request, in *chatBody[chat.RunSpec]) {
	switch {
	case in.Body.Background:
		started, err := s.opt.Chats.StartRun(r.Context(), in.ID, in.Body)
		s.answerJSON(w, r, http.StatusAccepted, started, err)
	case wantsFrames(r):
		s.sendFrames(w, r, func(ctx context.Context, f *frames) (chat.RunResult, error) {
			f.queued()
			in.Body.Started = f.started
			res, err := s.opt.Chats.RunTo(ctx, in.ID, in.Body, f.output)
			res.Stdout, res.Stderr = "", ""
			return res, err
		})
	default:
		res, err := s.opt.Chats.Run(r.Context(), in.ID, in.Body)
		s.answerJSON(w, r, http.StatusOK, res, err)
	}
}

// readRun sends what a background run printed from the cursor on, or follows it until it ends. A slow
// reader delays only this answer, never the run.
func (s *Server) readRun(w http.ResponseWriter, r *http.Request, in *readRunInput) {
	if wantsFrames(r) {
		s.sendFrames(w, r, func(ctx context.Context, f *frames) (chat.RunResult, error) {
			return s.opt.Chats.FollowRun(ctx, in.ID, in.Run, in.Cursor, f.send)
		})
		return
	}
	out, err := s.opt.Chats.ReadRun(r.Context(), in.ID, in.Run, in.Cursor)
	s.answerJSON(w, r, http.StatusOK, out, err)
}

func (s *Server) signalRun(ctx context.Context, in *signalInput) (*struct{}, error) {
	return nil, s.opt.Chats.SignalRun(ctx, in.ID, in.Run, in.Body)
}

// writeStdin streams the body to the run for as long as the run lives.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request, in *stdinInput) {
	leave, err := s.enterStream(r)
	defer leave()
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	body := &cutBody{r: r.Body, c: http.NewResponseController(w)}
	err = s.opt.Chats.WriteStdin(r.Context(), in.ID, in.Run, body, in.Close)
	if err != nil || body.cut() {
		w.Header().Set("Connection", "close") // what is left of the body is not read
	}
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
