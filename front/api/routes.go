package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/chatd/chatd/chat"
)

// access names the callers that may use a route.
type access string

const (
	anyone    access = "anyone"    // every peer that the socket's mode lets connect
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
	rawBytes body = "bytes" // streamed: its handler reads it
)

// register makes a row of the table a route of a server.
type register func(*Server, huma.API, huma.Operation)

// route is one row of the table. body says what a request carries; status is
// the usual answer.
type route struct {
	method, path string
	access       access
	body         body
	name         string
	status       int
	summary      string
	register     register
}

// routes is the API: every operation, its path and its access. The rows of each topic are in its
// file, with their handlers and the methods of [Client] that call them.
var routes = slices.Concat(lifeRoutes, archiveRoutes, runRoutes, scheduleRoutes, terminalRoutes,
	fileRoutes, []route{mcpRoute}, reportRoutes)

func (r route) pattern() string { return r.method + " " + r.path }

// target is what a request of the client addresses: a chat, if any, and an object in it.
type target struct {
	chat        chat.ID
	name, query string
}

// at is the path of the row for t. It refuses names that would make another path.
func (r route) at(t target) (string, error) {
	if strings.Contains(r.path, "{id}") {
		if _, err := chat.ParseID(string(t.chat)); err != nil {
			return "", err
		}
	}
	if strings.Contains(r.path, "{schedule}") {
		if err := chat.CheckName("schedule", t.name); err != nil {
			return "", err
		}
	}
	if strings.Contains(r.path, "{name}") {
		if _, err := chat.ParseArchiveName(t.name); err != nil {
			return "", err
		}
	}
	noRun := t.name == "" || len(t.name) > chat.MaxName || !plainPath("/"+t.name)
	if strings.Contains(r.path, "{run}") && noRun {
		return "", chat.NoRun(t.chat, t.name)
	}
	name := url.PathEscape(t.name)
	fill := strings.NewReplacer("{id}", string(t.chat), "{run}", name, "{schedule}", name, "{name}", name)
	return fill.Replace(r.path) + t.query, nil
}

// serve is a row whose handler is a method of Server.
func serve[I, O any](f func(*Server, context.Context, *I) (*O, error)) register {
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

type (
	// InChat is the chat in a path. Huma does not look into embedded structs that are not exported.
	InChat struct {
		ID string `path:"id" doc:"The chat: 16 lower-case hex digits."`
	}
	chatBody[T any] struct {
		InChat
		Body T
	}
	inChat interface{ chat() (chat.ID, error) }

	noInput       struct{}
	emptyOutput   struct{}
	bodyOf[T any] struct{ Body T }
)

func (in InChat) chat() (chat.ID, error) { return chat.ParseID(in.ID) }

// about is a row that gets an answer about one chat.
func about[I inChat, R any](ask func(context.Context, Chats, chat.ID, *I) (R, error)) register {
	return serve(func(s *Server, ctx context.Context, in *I) (*bodyOf[R], error) {
		id, err := (*in).chat()
		if err != nil {
			return nil, err
		}
		v, err := ask(ctx, s.opt.Chats, id, in)
		return &bodyOf[R]{v}, err
	})
}

// plain is such a row whose method takes only a chat.
func plain[R any](method func(Chats, context.Context, chat.ID) (R, error)) register {
	return about(func(ctx context.Context, c Chats, id chat.ID, _ *InChat) (R, error) {
		return method(c, ctx, id)
	})
}

// of is such a row whose method takes a chat and a body.
func of[A, R any](method func(Chats, context.Context, chat.ID, A) (R, error)) register {
	return about(func(ctx context.Context, c Chats, id chat.ID, in *chatBody[A]) (R, error) {
		return method(c, ctx, id, in.Body)
	})
}

// daemon is a row whose method takes nothing.
func daemon[R any](method func(Chats, context.Context) (R, error)) register {
	return serve(func(s *Server, ctx context.Context, _ *noInput) (*bodyOf[R], error) {
		v, err := method(s.opt.Chats, ctx)
		return &bodyOf[R]{v}, err
	})
}

// doing is a row that acts on one chat and has no answer.
func doing[I inChat](do func(context.Context, Chats, chat.ID, *I) error) register {
	return serve(func(s *Server, ctx context.Context, in *I) (*emptyOutput, error) {
		id, err := (*in).chat()
		if err == nil {
			err = do(ctx, s.opt.Chats, id, in)
		}
		return nil, err
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
			// readBody has already read and bounded the body; huma's own deadline would stay set
			// and cancel a long run.
			MaxBodyBytes: -1, BodyReadTimeout: -1,
		})
	}
}
