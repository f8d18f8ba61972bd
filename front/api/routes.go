package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
)

// register makes a row of the table a route of a server.
type register func(*Server, huma.API, huma.Operation)

// written are the rows of [verbs.Table] whose handlers are written by hand, because they read a
// query, have an answer of two kinds, or read or answer a stream. [Server.serveRow] serves every other row.
var written = map[string]register{
	"create": serve((*Server).create), "list": serve((*Server).list), "patch": servePatch,
	"reap":          serve((*Server).reap),
	"list_archives": serve((*Server).listArchives),
	"run":           serveStream((*Server).run), "run_output": serveStream((*Server).readRun),
	"run_stdin":  serveStream((*Server).writeStdin),
	"run_signal": serve((*Server).signalRun),
	"send":       serve((*Server).input), "screen": serve((*Server).screen), "log": serveStream((*Server).getLog),
	"attach":    serveStream((*Server).attach),
	"read_file": serve((*Server).readFile), "list_dir": serve((*Server).listDir),
	"write_file": serve((*Server).writeFile), "append_file": serve((*Server).appendFile),
	"edit_file":   serve((*Server).editFile),
	"get_content": serveStream((*Server).getContent), "put_content": serveStream((*Server).putContent),
	"mcp":  serveMCP,
	"host": serve((*Server).host), "health": serve((*Server).health), "openapi": serveOpenAPI,
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

// registerRoutes fills the mux from the table.
func (s *Server) registerRoutes() {
	s.mux = http.NewServeMux()
	s.byPattern = map[string]verbs.Row{}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "chatd", Version: s.opt.Version,
				Description: "One walled-in Linux user per conversation.",
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			},
		},
		Formats:                      map[string]huma.Format{client.JSONType: jsonFormat, "json": jsonFormat},
		DefaultFormat:                client.JSONType,
		RejectUnknownQueryParameters: true,
	}
	a := humago.New(s.mux, config)
	for _, row := range verbs.Table {
		if row.Name != "openapi" {
			s.register(a, row)
		}
	}
	last, _ := verbs.Find("openapi") // describes all others
	s.register(a, last)
}

func (s *Server) register(a huma.API, row verbs.Row) {
	s.byPattern[row.Pattern()] = row
	op := huma.Operation{
		Method: row.Method, Path: row.Path, OperationID: row.Name, Summary: row.Help,
		DefaultStatus: row.Status, Description: "For " + string(row.Access) + ".",
		// readBody has already read and bounded the body; huma's own deadline would stay set
		// and cancel a long run.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses: problemResponse(),
	}
	if row.Body == verbs.Bytes {
		op.RequestBody = &huma.RequestBody{Required: row.Method == "PUT", Content: rawContent}
	}
	if w := written[row.Name]; w != nil {
		w(s, a, op)
		return
	}
	s.serveRow(a, op, row)
}
