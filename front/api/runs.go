package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
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

// serveRun describes the answer of a background run beside the usual one.
func serveRun(s *Server, a huma.API, op huma.Operation) {
	op.Responses = problemResponse()
	op.Responses["202"] = &huma.Response{Description: "The run, which goes on in the background.",
		Content: jsonContent(a, chat.Run{})}
	serve((*Server).run)(s, a, op)
}

func (s *Server) run(ctx context.Context, in *chatBody[chat.RunSpec]) (*bodyOf[chat.RunResult], error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	r, err := s.opt.Chats.Run(ctx, id, in.Body)
	return &bodyOf[chat.RunResult]{r}, err
}

// streamed answers requests that huma would read or write whole, and reports whether it answered.
func (s *Server) streamed(w http.ResponseWriter, r *http.Request, rt verbs.Row) bool {
	switch {
	case rt.Name == "run" && inBackground(r):
		s.startRun(w, r)
	case rt.Name == "run" && wantsFrames(r):
		s.streamRun(w, r)
	default:
		return false
	}
	return true
}

// inBackground reports whether the body asks for a background run, and leaves the body to be read
// again.
func inBackground(r *http.Request) bool {
	b, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	var spec struct {
		Background bool `json:"background"`
	}
	return err == nil && json.Unmarshal(b, &spec) == nil && spec.Background
}

// startRun serves a background run.
func (s *Server) startRun(w http.ResponseWriter, r *http.Request) {
	answerBody(s, w, r, http.StatusAccepted, s.opt.Chats.StartRun)
}

// serveReadRun describes an answer that may be a stream.
func serveReadRun(s *Server, a huma.API, op huma.Operation) {
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Content: typeContent(a, reflect.TypeFor[chat.RunOutput]())}
	serveStream((*Server).readRun)(s, a, op)
}

// readRun sends what a background run printed from the cursor on, or follows it until it ends. A slow
// reader delays only this answer, never the run.
func (s *Server) readRun(w http.ResponseWriter, r *http.Request, in *readRunInput) {
	id, err := in.id()
	if wantsFrames(r) {
		s.sendFrames(w, r, err, func(ctx context.Context, f *frames) (chat.RunResult, error) {
			return s.opt.Chats.FollowRun(ctx, id, in.Run, in.Cursor, f.send)
		})
		return
	}
	var out chat.RunOutput
	if err == nil {
		out, err = s.opt.Chats.ReadRun(r.Context(), id, in.Run, in.Cursor)
	}
	s.answerJSON(w, r, http.StatusOK, out, err)
}

func (s *Server) signalRun(ctx context.Context, in *signalInput) (*struct{}, error) {
	id, err := in.id()
	if err == nil {
		err = s.opt.Chats.SignalRun(ctx, id, in.Run, in.Body)
	}
	return nil, err
}

// serveStdin describes a body that is not JSON.
func serveStdin(s *Server, a huma.API, op huma.Operation) {
	op.RequestBody = &huma.RequestBody{Content: rawContent}
	op.Responses = problemResponse()
	op.Responses["204"] = &huma.Response{Description: "All of it was written."}
	serveStream((*Server).writeStdin)(s, a, op)
}

// writeStdin streams the body to the run for as long as the run lives.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request, in *stdinInput) {
	id, err := in.id()
	leave, full := s.enterStream(r)
	defer leave()
	if err = errors.Join(err, full); err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	body := &cutBody{r: r.Body, c: http.NewResponseController(w)}
	err = s.opt.Chats.WriteStdin(r.Context(), id, in.Run, body, in.Close)
	if err != nil || body.cut() {
		w.Header().Set("Connection", "close") // what is left of the body is not read
	}
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
