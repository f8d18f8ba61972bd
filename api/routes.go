package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/chatd/chatd/chat"
)

// access is who a route is for.
type access string

const (
	anyone    access = "anyone"    // whoever the socket's mode lets connect
	bridges   access = "bridges"   // bridges and operators
	operators access = "operators" // operators only
)

func (a access) admits(role chat.Role) bool {
	switch a {
	case anyone:
		return true
	case bridges:
		return role == chat.RoleBridge || role == chat.RoleOperator
	}
	return role == chat.RoleOperator
}

// body is what a request carries.
type body string

const (
	nothing  body = "nothing"
	jsonBody body = "JSON"  // read, bounded and checked before anything else looks at it
	rawBytes body = "bytes" // read by whoever serves it, as it comes
)

// route is one row of the table. body says what a request carries; status is
// the usual answer.
type route struct {
	method, path string
	access       access
	body         body
	name         string
	status       int
	summary      string
	register     func(*Server, huma.API, huma.Operation)
}

// routes is the API: what, where, for whom.
var routes = []route{
	{"POST", "/v1/chats", bridges, jsonBody, "create", 201, "Create a chat, or find the one of this external id (200).", serve((*Server).create)},
	{"GET", "/v1/chats", bridges, nothing, "list", 200, "List the caller's chats; an operator's are all.", serve((*Server).list)},
	{"GET", "/v1/chats/{id}", bridges, nothing, "show", 200, "Show one chat.", serve((*Server).show)},
	{"PATCH", "/v1/chats/{id}", bridges, jsonBody, "patch", 200, "Change a chat's labels by a JSON merge patch (RFC 7396); null takes a label away, or all of them.", servePatch},
	{"DELETE", "/v1/chats/{id}", bridges, nothing, "reap", 204, "End a chat and remove every trace of it.", serve((*Server).reap)},
	{"POST", "/v1/chats/{id}/wake", bridges, nothing, "wake", 200, "Give a chat a session.", serve((*Server).wake)},
	{"POST", "/v1/chats/{id}/sleep", bridges, nothing, "sleep", 200, "End a chat's processes and keep its home.", serve((*Server).sleep)},
	{"POST", "/v1/chats/{id}/runs", bridges, jsonBody, "run", 200, "Run one command beside the chat's terminal and wait for its end; with Accept: application/x-ndjson, its output comes as it is printed; with background, answer with its id (202).", serveRun},
	{"GET", "/v1/chats/{id}/runs", bridges, nothing, "runs", 200, "List the chat's runs: those under way, and those of the background that are kept.", serve((*Server).runs)},
	{"GET", "/v1/chats/{id}/runs/{run}", bridges, nothing, "run_show", 200, "Show one run, with what it printed so far.", serve((*Server).showRun)},
	{"DELETE", "/v1/chats/{id}/runs/{run}", bridges, nothing, "run_end", 204, "End a run: SIGTERM, its grace, then all of it.", serve((*Server).endRun)},
	{"GET", "/v1/chats/{id}/runs/{run}/output", bridges, nothing, "run_output", 200, "Read what a run of the background printed, from a cursor on; with Accept: application/x-ndjson, follow it to its end.", serve((*Server).readRun)},
	{"POST", "/v1/chats/{id}/runs/{run}/stdin", bridges, rawBytes, "run_stdin", 204, "Send bytes to the standard input of a run that has it open, as they come.", serveStdin},
	{"POST", "/v1/chats/{id}/runs/{run}/signal", bridges, jsonBody, "run_signal", 204, "Send a signal to every process of a run, or set the size of its terminal.", serve((*Server).signalRun)},
	{"POST", "/v1/chats/{id}/schedules", bridges, jsonBody, "add_schedule", 201, "Have a chat run a command by the clock.", serve((*Server).addSchedule)},
	{"GET", "/v1/chats/{id}/schedules", bridges, nothing, "list_schedules", 200, "List a chat's schedules, with how the last run of each went.", serve((*Server).listSchedules)},
	{"GET", "/v1/chats/{id}/schedules/{schedule}", bridges, nothing, "show_schedule", 200, "Show one schedule.", serve((*Server).showSchedule)},
	{"DELETE", "/v1/chats/{id}/schedules/{schedule}", bridges, nothing, "remove_schedule", 204, "Remove a schedule; a run of it that is under way goes on.", serve((*Server).removeSchedule)},
	{"POST", "/v1/chats/{id}/input", bridges, jsonBody, "send", 204, "Type into the chat's terminal; with wait, answer with what was printed (200).", serve((*Server).input)},
	{"GET", "/v1/chats/{id}/screen", bridges, nothing, "screen", 200, "Show what the chat's terminal shows.", serve((*Server).screen)},
	{"GET", "/v1/chats/{id}/log", bridges, nothing, "log", 200, "Read what the chat's terminal printed, from a cursor on; with follow=true, as server-sent events.", serveLog},
	{"POST", "/v1/chats/{id}/attach", operators, jsonBody, "attach", 200, "Show the chat's terminal as it changes, in frames of a run, to which input and new sizes are sent.", serveAttach},
	{"POST", "/v1/chats/{id}/files/read_file", bridges, jsonBody, "read_file", 200, "Read a page of a file, by bytes or by lines.", serve((*Server).readFile)},
	{"POST", "/v1/chats/{id}/files/write_file", bridges, jsonBody, "write_file", 200, "Write a file, in one step (201 if it is new).", serve((*Server).writeFile)},
	{"POST", "/v1/chats/{id}/files/edit_file", bridges, jsonBody, "edit_file", 200, "Replace a text that is there exactly once.", serve((*Server).editFile)},
	{"POST", "/v1/chats/{id}/files/append_file", bridges, jsonBody, "append_file", 200, "Add to the end of a file (201 if it is new).", serve((*Server).appendFile)},
	{"POST", "/v1/chats/{id}/files/list_dir", bridges, jsonBody, "list_dir", 200, "List a directory.", serve((*Server).listDir)},
	{"GET", "/v1/chats/{id}/files/content", bridges, nothing, "get_content", 200, "Read a file, or a part of it, as a stream of bytes.", serveGetContent},
	{"PUT", "/v1/chats/{id}/files/content", bridges, rawBytes, "put_content", 200, "Write a file, or append to it, from a stream of bytes (201 if it is new).", servePutContent},
	{"POST", "/v1/chats/{id}/explain", bridges, jsonBody, "explain", 200, "Say whether the file rules allow something, and which rule says so.", serve((*Server).explain)},
	{"POST", "/v1/chats/{id}/mcp", bridges, jsonBody, "mcp", 200, "Speak the Model Context Protocol (streamable HTTP, without sessions) to the chat's tools.", serveMCP},
	{"POST", "/v1/chats/{id}/share", bridges, jsonBody, "share", 200, "Copy one regular file to another chat.", serve((*Server).share)},
	{"GET", "/v1/chats/{id}/plan", operators, nothing, "plan", 200, "Show what a chat's session is made of: mounts, rules, names of the environment.", serve((*Server).plan)},
	{"GET", "/v1/host", operators, nothing, "host", 200, "Describe the host and its walls.", serve((*Server).host)},
	{"GET", "/v1/status", operators, nothing, "status", 200, "Show the daemon at a glance: since when, its chats, the walls that do not stand, what is nearly spent, what failed lately.", serve((*Server).status)},
	{"GET", "/healthz", anyone, nothing, "health", 200, "Say that the daemon answers.", serve((*Server).health)},
	{"GET", "/openapi.json", bridges, nothing, "openapi", 200, "This description (OpenAPI 3.1).", serveOpenAPI},
}

func (r route) pattern() string { return r.method + " " + r.path }

// serve makes a handler method a row's register function.
func serve[I, O any](f func(*Server, context.Context, *I) (*O, error)) func(*Server, huma.API, huma.Operation) {
	return func(s *Server, a huma.API, op huma.Operation) {
		huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := f(s, ctx, in)
			if err != nil {
				return nil, s.problem(ctx, err)
			}
			return out, nil
		})
	}
}

// serveOpenAPI answers with the description; it is the last of the table, and describes them all.
func serveOpenAPI(s *Server, a huma.API, op huma.Operation) {
	op.Responses = problemResponse()
	a.OpenAPI().AddOperation(&op)
	s.completeDescription(a)
	text, err := json.MarshalIndent(a.OpenAPI(), "", "  ")
	s.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		if err != nil {
			s.refuse(w, s.problem(r.Context(), fmt.Errorf("cannot write the OpenAPI description: %w", err)))
			return
		}
		w.Header().Set("Content-Type", jsonType)
		// A client that stopped reading gets no further answer.
		_, _ = w.Write(append(text, '\n'))
	})
}

// registerRoutes fills the mux from the table.
func (s *Server) registerRoutes() {
	s.mux = http.NewServeMux()
	s.byPattern = map[string]route{}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "chatd", Version: s.opt.Version, Description: "One walled-in Linux user per conversation."},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			},
		},
		Formats:                      map[string]huma.Format{jsonType: jsonFormat, "json": jsonFormat},
		DefaultFormat:                jsonType,
		RejectUnknownQueryParameters: true,
	}
	a := humago.New(s.mux, config)
	for _, r := range routes {
		s.byPattern[r.pattern()] = r
		r.register(s, a, huma.Operation{
			Method: r.method, Path: r.path, OperationID: r.name, Summary: r.summary,
			DefaultStatus: r.status, Description: "For " + string(r.access) + ".",
			// readBody has read and bounded it; huma's own deadline would stay and
			// cancel a long run.
			MaxBodyBytes: -1, BodyReadTimeout: -1,
		})
	}
}
