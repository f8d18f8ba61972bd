package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// The rows that report on a chat and on the host.
var (
	explain = route{"POST", "/v1/chats/{id}/explain", bridges, jsonBody, "explain", 200, "Say whether the file rules allow something, or the egress a destination, and which rule or entry says so.", of(Chats.Explain)}
	egress  = route{
		"GET", "/v1/chats/{id}/egress", bridges, nothing, "egress", 200,
		"List what became of a chat's connections: allowed, refused and failed ones.",
		plain(Chats.EgressLog),
	}
	plan    = route{"GET", "/v1/chats/{id}/plan", operators, nothing, "plan", 200, "Show what a chat's session is made of: mounts, rules, names of the environment.", plain(Chats.Plan)}
	host    = route{"GET", "/v1/host", operators, nothing, "host", 200, "Describe the host and its walls.", serve((*Server).host)}
	status  = route{"GET", "/v1/status", operators, nothing, "status", 200, "Show the daemon at a glance: since when, its chats, the walls that do not stand, what is nearly spent, what failed lately.", daemon(Chats.Status)}
	health  = route{"GET", "/healthz", anyone, nothing, "health", 200, "Say whether the daemon can begin something: 503 if not, as on a full disk.", serve((*Server).health)}
	backup  = route{"POST", "/v1/backup", operators, nothing, "backup", 200, "Write records, key and audit log into one tar, which root alone can read.", daemon(Chats.Backup)}
	openapi = route{"GET", "/openapi.json", bridges, nothing, "openapi", 200, "This description (OpenAPI 3.1).", serveOpenAPI}

	reportRoutes = []route{explain, egress, plan, host, status, health, backup, openapi}
)

type healthAnswer struct {
	Status string `json:"status"`
}

// Explain is POST …/explain.
func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return askFor[chat.Explained](ctx, c, explain, target{chat: id}, q)
}

func (s *Server) host(ctx context.Context, _ *noInput) (*bodyOf[chat.Host], error) {
	h, err := s.opt.Chats.Host(ctx)
	s.addStreams(&h)
	return &bodyOf[chat.Host]{h}, err
}

// health reports whether the daemon can begin something, and nothing about its chats.
func (s *Server) health(ctx context.Context, _ *noInput) (*bodyOf[healthAnswer], error) {
	st, err := s.opt.Chats.Status(ctx)
	if err == nil && !st.Ready {
		err = fmt.Errorf("cannot begin anything now: chatd status says why: %w", chat.ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	return &bodyOf[healthAnswer]{healthAnswer{"ok"}}, nil
}

// serveOpenAPI answers with the description; it is the last row, so that it describes all rows.
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
