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

// route is one row of the table. body says whether a request has one; status is
// the usual answer.
type route struct {
	method, path string
	access       access
	body         bool
	name         string
	status       int
	summary      string
	register     func(*Server, huma.API, huma.Operation)
}

// routes is the API: what, where, for whom.
var routes = []route{
	{"POST", "/v1/chats", bridges, true, "create", 201, "Create a chat, or find the one of this external id (200).", serve((*Server).create)},
	{"GET", "/v1/chats", bridges, false, "list", 200, "List the caller's chats; an operator's are all.", serve((*Server).list)},
	{"GET", "/v1/chats/{id}", bridges, false, "show", 200, "Show one chat.", serve((*Server).show)},
	{"DELETE", "/v1/chats/{id}", bridges, false, "reap", 204, "End a chat and remove every trace of it.", serve((*Server).reap)},
	{"POST", "/v1/chats/{id}/wake", bridges, false, "wake", 200, "Give a chat a session.", serve((*Server).wake)},
	{"POST", "/v1/chats/{id}/sleep", bridges, false, "sleep", 200, "End a chat's processes and keep its home.", serve((*Server).sleep)},
	{"POST", "/v1/chats/{id}/runs", bridges, true, "run", 200, "Run one command beside the chat's terminal and wait for its end.", serve((*Server).run)},
	{"POST", "/v1/chats/{id}/input", bridges, true, "send", 204, "Type into the chat's terminal.", serve((*Server).input)},
	{"GET", "/v1/chats/{id}/screen", bridges, false, "screen", 200, "Show what the chat's terminal shows.", serve((*Server).screen)},
	{"GET", "/v1/host", operators, false, "host", 200, "Describe the host and its walls.", serve((*Server).host)},
	{"GET", "/healthz", anyone, false, "health", 200, "Say that the daemon answers.", serve((*Server).health)},
	{"GET", "/openapi.json", bridges, false, "openapi", 200, "This description (OpenAPI 3.1).", serveOpenAPI},
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

// serveOpenAPI answers with the description of the routes registered before it.
func serveOpenAPI(s *Server, a huma.API, op huma.Operation) {
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
		Formats:                      map[string]huma.Format{jsonType: huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
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
