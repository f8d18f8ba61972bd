package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// The rows about runs.
var (
	run        = route{"POST", "/v1/chats/{id}/runs", bridges, jsonBody, "run", 200, "Run one command beside the chat's terminal and wait for its end; with Accept: application/x-ndjson, its output comes as it is printed; with background, answer with its id (202).", serveRun}
	listRuns   = route{"GET", "/v1/chats/{id}/runs", bridges, nothing, "runs", 200, "List the chat's runs: those under way, and the background runs that are kept.", plain(Chats.Runs)}
	processes  = route{"GET", "/v1/chats/{id}/processes", bridges, nothing, "processes", 200, "List the processes in a chat, with what each takes; one that is asleep has none.", plain(Chats.Processes)}
	showRun    = route{"GET", "/v1/chats/{id}/runs/{run}", bridges, nothing, "run_show", 200, "Show one run, with what it printed so far.", about(runOf)}
	endRun     = route{"DELETE", "/v1/chats/{id}/runs/{run}", bridges, nothing, "run_end", 204, "End a run: SIGTERM, its grace, then all of it.", doing(endRunOf)}
	readRun    = route{"GET", "/v1/chats/{id}/runs/{run}/output", bridges, nothing, "run_output", 200, "Read what a background run printed, from a cursor on; with Accept: application/x-ndjson, follow it to its end.", about(outputOf)}
	writeStdin = route{"POST", "/v1/chats/{id}/runs/{run}/stdin", bridges, rawBytes, "run_stdin", 204, "Send bytes to the standard input of a run that has it open, as they come.", serveStdin}
	signalRun  = route{"POST", "/v1/chats/{id}/runs/{run}/signal", bridges, jsonBody, "run_signal", 204, "Send a signal to every process of a run, or set the size of its terminal.", doing(signalRunOf)}

	runRoutes = []route{run, listRuns, processes, showRun, endRun, readRun, writeStdin, signalRun}
)

type (
	inRun struct {
		InChat
		Run string `path:"run" doc:"The run, as its start or a list named it."`
	}
	readRunInput struct {
		InChat
		Run    string `path:"run" doc:"The run, as its start or a list named it."`
		Cursor string `query:"cursor" maxLength:"64" doc:"Where to begin, as an answer before said; the beginning if absent."`
	}
	signalInput struct {
		InChat
		Run  string `path:"run" doc:"The run, as its start or a list named it."`
		Body chat.RunSignal
	}
)

// serveRun describes the answer of a background run beside the usual one.
func serveRun(s *Server, a huma.API, op huma.Operation) {
	op.Responses = problemResponse()
	op.Responses["202"] = &huma.Response{Description: "The run, which goes on in the background.", Content: jsonContent(a, chat.Run{})}
	of(Chats.Run)(s, a, op)
}

// Run is POST /v1/chats/{id}/runs; it returns when the command has ended, and
// ending ctx ends the command.
func (c *Client) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error) {
	return askFor[chat.RunResult](ctx, c, run, target{chat: id}, spec)
}

// streamed answers requests that huma would read or write whole, and reports whether it answered.
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

// StartRun is POST /v1/chats/{id}/runs with background.
func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	spec.Background = true
	return askFor[chat.Run](ctx, c, run, target{chat: id}, spec)
}

func runOf(ctx context.Context, c Chats, id chat.ID, in *inRun) (chat.Run, error) {
	return c.ShowRun(ctx, id, in.Run)
}

// ShowRun is GET /v1/chats/{id}/runs/{run}.
func (c *Client) ShowRun(ctx context.Context, id chat.ID, run string) (chat.Run, error) {
	return askFor[chat.Run](ctx, c, showRun, target{chat: id, name: run}, nil)
}

func endRunOf(ctx context.Context, c Chats, id chat.ID, in *inRun) error {
	return c.EndRun(ctx, id, in.Run)
}

func signalRunOf(ctx context.Context, c Chats, id chat.ID, in *signalInput) error {
	return c.SignalRun(ctx, id, in.Run, in.Body)
}

// SignalRun is POST /v1/chats/{id}/runs/{run}/signal.
func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	_, err := c.do(ctx, signalRun, target{chat: id, name: run}, s, nil)
	return err
}

func outputOf(ctx context.Context, c Chats, id chat.ID, in *readRunInput) (chat.RunOutput, error) {
	return c.ReadRun(ctx, id, in.Run, in.Cursor)
}

// ReadRun is GET /v1/chats/{id}/runs/{run}/output.
func (c *Client) ReadRun(ctx context.Context, id chat.ID, run, cursor string) (chat.RunOutput, error) {
	return askFor[chat.RunOutput](ctx, c, readRun, readFrom(id, run, cursor), nil)
}

func readFrom(id chat.ID, run, cursor string) target {
	return target{id, run, "?cursor=" + url.QueryEscape(cursor)}
}

// followRun sends what a background run prints, from the cursor on, until it ends. A slow reader
// delays only this answer, never the run.
func (s *Server) followRun(w http.ResponseWriter, r *http.Request) {
	id, err := chat.ParseID(pathPart(r, 3))
	s.sendFrames(w, r, err, func(ctx context.Context, f *frames) (chat.RunResult, error) {
		return s.opt.Chats.FollowRun(ctx, id, pathPart(r, 5), r.URL.Query().Get("cursor"), f.send)
	})
}

// FollowRun is GET /v1/chats/{id}/runs/{run}/output as a stream; ending ctx ends only the stream.
func (c *Client) FollowRun(ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame)) (chat.RunResult, error) {
	return c.framed(ctx, readRun, readFrom(id, run, cursor), nil, out)
}

// serveStdin registers a route of its own because the body is not JSON.
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

// writeStdin streams the body to the run for as long as the run lives.
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

// WriteStdin is POST /v1/chats/{id}/runs/{run}/stdin. It holds one piece of body at a time.
func (c *Client) WriteStdin(ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool) (err error) {
	t := target{id, run, "?close=" + strconv.FormatBool(last)}
	resp, err := c.sendBody(ctx, writeStdin, t, map[string]string{"Content-Type": byteType}, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return decode(resp, nil)
}
