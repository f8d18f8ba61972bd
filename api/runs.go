package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

type (
	oneRunInput struct {
		ID  string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Run string `path:"run" doc:"The run, as its start or a list named it."`
	}
	readRunInput struct {
		ID     string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Run    string `path:"run" doc:"The run, as its start or a list named it."`
		Cursor string `query:"cursor" maxLength:"64" doc:"Where to begin, as an answer before said; the beginning if absent."`
	}
	signalInput struct {
		ID   string `path:"id" doc:"The chat: 16 lower-case hex digits."`
		Run  string `path:"run" doc:"The run, as its start or a list named it."`
		Body chat.RunSignal
	}
)

func (s *Server) runs(ctx context.Context, in *idInput) (*bodyOf[chat.Runs], error) {
	return byID(ctx, in, s.opt.Chats.Runs)
}

func (s *Server) showRun(ctx context.Context, in *oneRunInput) (*bodyOf[chat.Run], error) {
	return byID(ctx, &idInput{in.ID}, func(ctx context.Context, id chat.ID) (chat.Run, error) {
		return s.opt.Chats.ShowRun(ctx, id, in.Run)
	})
}

func (s *Server) endRun(ctx context.Context, in *oneRunInput) (*emptyOutput, error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.opt.Chats.EndRun(ctx, id, in.Run)
}

func (s *Server) signalRun(ctx context.Context, in *signalInput) (*emptyOutput, error) {
	id, err := chat.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	return nil, s.opt.Chats.SignalRun(ctx, id, in.Run, in.Body)
}

func (s *Server) readRun(ctx context.Context, in *readRunInput) (*bodyOf[chat.RunOutput], error) {
	return byID(ctx, &idInput{in.ID}, func(ctx context.Context, id chat.ID) (chat.RunOutput, error) {
		return s.opt.Chats.ReadRun(ctx, id, in.Run, in.Cursor)
	})
}

// serveRun adds to the usual answer of a run the one of the background.
func serveRun(s *Server, a huma.API, op huma.Operation) {
	op.Responses = problemResponse()
	op.Responses["202"] = &huma.Response{Description: "The run, which goes on in the background.", Content: jsonContent(a, chat.Run{})}
	serve((*Server).run)(s, a, op)
}

// streamed answers what huma would read or write whole, and says whether it did.
func (s *Server) streamed(w http.ResponseWriter, r *http.Request, rt route) bool {
	switch {
	case rt.name == "run" && inBackground(r):
		s.startRun(w, r)
	case rt.name == "run" && wantsFrames(r):
		s.streamRun(w, r)
	case rt.name == "run_output" && wantsFrames(r):
		s.followRun(w, r)
	default:
		return false
	}
	return true
}

// inBackground looks into a body that was read already, and leaves it to be read again.
func inBackground(r *http.Request) bool {
	b, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	var spec struct {
		Background bool `json:"background"`
	}
	return err == nil && json.Unmarshal(b, &spec) == nil && spec.Background
}

// startRun is a run of the background.
func (s *Server) startRun(w http.ResponseWriter, r *http.Request) {
	var spec chat.RunSpec
	id, err := idAndBody(r, &spec)
	var run chat.Run
	if err == nil {
		run, err = s.opt.Chats.StartRun(r.Context(), id, spec)
	}
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	s.answerJSON(w, r, http.StatusAccepted, run)
}

// followRun sends what a run of the background prints, from the cursor on, until it ends. A
// reader that does not take it is waited for, and not the run.
func (s *Server) followRun(w http.ResponseWriter, r *http.Request) {
	id, err := chat.ParseID(pathPart(r, 3))
	s.sendFrames(w, r, err, func(ctx context.Context, f *frames) (chat.RunResult, error) {
		return s.opt.Chats.FollowRun(ctx, id, pathPart(r, 5), r.URL.Query().Get("cursor"), f.send)
	})
}

// serveStdin: the body is no JSON.
func serveStdin(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{
		chatParam,
		param("path", "run", "string", "The run, as its start or a list named it."),
		param("query", "close", "boolean", "Close standard input after the body."),
	}
	op.RequestBody = &huma.RequestBody{Content: rawContent}
	op.Responses = problemResponse()
	op.Responses["204"] = &huma.Response{Description: "All of it was written."}
	s.serveBeside(a, op, s.writeStdin)
}

// writeStdin passes the body on as it comes, for as long as the run lives.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request) {
	id, err := chat.ParseID(r.PathValue("id"))
	for k, v := range r.URL.Query() {
		if k != "close" || v[0] != "true" && v[0] != "false" {
			err = errors.Join(err, invalid(http.StatusBadRequest, "query", "cannot use parameter %s: want close=true or close=false", chat.Quote(k)))
		}
	}
	leave, full := s.enterStream(r)
	defer leave()
	if err = errors.Join(err, full); err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	body := &cutBody{r: r.Body, c: http.NewResponseController(w)}
	err = s.opt.Chats.WriteStdin(r.Context(), id, r.PathValue("run"), body, r.URL.Query().Get("close") == "true")
	if err != nil || body.cut() {
		w.Header().Set("Connection", "close") // what is left of the body is not read
	}
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
