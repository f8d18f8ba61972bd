package api

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
)

// answers are what a route answers beside what its registration says: a status, a media type
// and a value in it, nil for text. An empty media type is no content.
var answers = []struct {
	route  string
	status int
	kind   string
	value  any
	doc    string
}{
	{"create", http.StatusOK, client.JSONType, chat.Chat{}, "The chat that is there."},
	{"patch", http.StatusOK, client.JSONType, chat.Chat{}, "The chat as it is now."},
	{"reap", http.StatusOK, client.JSONType, chat.Archive{}, "With archive=true: the archive."},
	{"reap", http.StatusNoContent, "", nil, "No trace of it is left."},
	{"write_file", http.StatusCreated, client.JSONType, client.FileAnswer{}, "The file is new."},
	{"append_file", http.StatusCreated, client.JSONType, client.FileAnswer{}, "The file is new."},
	{"send", http.StatusOK, client.JSONType, chat.Typed{}, "What was printed, where wait asked for it."},
	{"send", http.StatusNoContent, "", nil, "It was typed."},
	{"run", http.StatusAccepted, client.JSONType, chat.Run{}, "The run, which goes on in the background."},
	{"run", http.StatusOK, client.JSONType, chat.RunResult{}, ""},
	{"run", http.StatusOK, client.FrameType, nil,
		"How it ended; as a stream, a frame of JSON a line, the last with the result."},
	{"run_output", http.StatusOK, client.JSONType, chat.RunOutput{}, ""},
	{"run_output", http.StatusOK, client.FrameType, nil,
		"A piece; as a stream, a frame of JSON a line until the run ends."},
	{"run_stdin", http.StatusNoContent, "", nil, "All of it was written."},
	{"log", http.StatusOK, client.JSONType, chat.Log{}, ""},
	{"log", http.StatusOK, client.EventType, nil, "A piece, or a stream of them."},
	{"attach", http.StatusOK, client.FrameType, nil,
		"A frame of JSON a line: the run's id, then what the terminal is sent, then the end."},
	{"get_content", http.StatusOK, client.ByteType, nil, "The bytes. The trailer " + client.AnswerTrailer +
		" has the tool's answer; without it they are not all."},
	{"put_content", http.StatusOK, client.JSONType, client.FileAnswer{}, "What was written."},
	{"put_content", http.StatusCreated, client.JSONType, client.FileAnswer{}, "What was written."},
	{"openapi", http.StatusOK, client.JSONType, map[string]any{}, "This description."},
}

// refusals are the statuses of problems that any route may answer, and those of a route with a
// body. A status that no route has (405, 417, 431, 505) comes before there is a route.
var (
	refusals     = []int{400, 403, 404, 409, 500, 501, 503}
	bodyRefusals = []int{408, 413, 415}
)

// completeDescription adds to the description what huma cannot know.
func (s *Server) completeDescription(a huma.API) {
	doc := a.OpenAPI()
	doc.Servers = []*huma.Server{{URL: "http://chatd",
		Description: "Over chatd's unix socket, /run/chatd/chatd.sock by default. The name of the host is not looked at."}}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"peer": {Type: "mutualTLS",
		Description: "There is no TLS and nothing to send: the kernel says who connected to the socket (SO_PEERCRED, SO_PEERGROUPS). The type is the nearest that OpenAPI has, for it too is a property of the connection."}}
	doc.Security = []map[string][]string{{"peer": {}}}
	doc.Components.Responses = map[string]*huma.Response{"Problem": problemResponse()["default"]}
	for _, r := range s.byPattern {
		op := operationOf(doc, r)
		for _, add := range answers {
			if add.route == r.Name {
				addAnswer(a, op, add.status, add.kind, add.value, add.doc)
			}
		}
		addRefusals(op, r)
		if r.Access == verbs.Anyone {
			op.Security = []map[string][]string{{}}
		}
	}
}

// operationOf is the row's operation in the description.
func operationOf(doc *huma.OpenAPI, r verbs.Row) *huma.Operation {
	item := doc.Paths[r.Path]
	if op := map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
		"PATCH": item.Patch, "DELETE": item.Delete}[r.Method]; op != nil {
		return op
	}
	panic(fmt.Sprintf("the description lacks %s", r.Pattern())) // a method that the map above lacks
}

// addAnswer adds a status, or a media type to one that is there.
func addAnswer(a huma.API, op *huma.Operation, status int, kind string, value any, doc string) {
	key := strconv.Itoa(status)
	res := op.Responses[key]
	if res == nil {
		res = &huma.Response{}
		op.Responses[key] = res
	}
	res.Description = doc
	if res.Content == nil {
		res.Content = map[string]*huma.MediaType{}
	}
	switch {
	case kind == "":
		res.Content = nil
	case kind == client.ByteType:
		maps.Copy(res.Content, rawContent)
	case value == nil:
		maps.Copy(res.Content, textContent(kind))
	default:
		maps.Copy(res.Content, jsonContent(a, reflect.TypeOf(value)))
	}
}

// addRefusals names the problems of a route. Problems that it already describes stay.
func addRefusals(op *huma.Operation, r verbs.Row) {
	statuses := refusals
	if r.Body != verbs.Nothing {
		statuses = append(slices.Clone(refusals), bodyRefusals...)
	}
	for _, s := range statuses {
		key := strconv.Itoa(s)
		if res := op.Responses[key]; res == nil {
			op.Responses[key] = &huma.Response{Ref: "#/components/responses/Problem"}
		} else if res.Content[client.ProblemType] == nil && res.Ref == "" {
			res.Content[client.ProblemType] = problemResponse()["default"].Content[client.ProblemType]
		}
	}
}
