package api

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// serveRow serves a verb as its row says, and describes body and answer by their types.
func (s *Server) serveRow(a huma.API, op huma.Operation, row verbs.Row) {
	shape := strings.Join(pathParam.FindAllString(row.Path, -1), "")
	args, answer := row.Types()
	if args != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: jsonContent(a, args)}
		shape += " body"
	}
	if answer != nil {
		op.Responses[strconv.Itoa(row.Status)] = &huma.Response{Content: jsonContent(a, answer)}
	}
	shapes[shape](s, a, op, row)
	if answer == nil {
		op.Responses[strconv.Itoa(row.Status)] = &huma.Response{Description: http.StatusText(row.Status)}
	}
}

var pathParam = regexp.MustCompile(`{\w+}`)

// shapes are the requests that rows have, by the parameters of the path and whether there is a body.
// Huma knows a request by its type; it checks a body by the description, and a row decodes it.
var shapes = map[string]func(*Server, huma.API, huma.Operation, verbs.Row){
	"":          serveShape[noInput],
	"{id}":      serveShape[InChat],
	"{id} body": serveShape[rawBody], "{id}{run}": serveShape[InRun],
	"{id}{schedule}": serveShape[inSchedule],
	"{name}":         serveShape[inArchive],
}

// Huma does not look into embedded structs that are not exported.
type (
	// InChat is the chat in a path, which checkRequest has looked at.
	InChat struct {
		ID chat.ID `path:"id" doc:"The chat: 16 lower-case hex digits."`
	}
	// InRun is a run in a path.
	InRun struct {
		InChat
		Run string `path:"run" doc:"The run, as its start or a list named it."`
	}
	noInput struct{}
	rawBody struct {
		InChat
		Body json.RawMessage
	}
	inSchedule struct {
		InChat
		Schedule string `path:"schedule" maxLength:"64" doc:"The schedule's id."`
	}
	inArchive struct {
		Name string `path:"name" maxLength:"64" doc:"The archive: its chat's id, a dash, a time."`
	}
)

// input is a request of one of the shapes.
type input interface{ target() target }

// target is what a request addresses: a chat and the name of an object; and its body.
type target struct {
	chat chat.ID
	name string
	body json.RawMessage
}

func (noInput) target() target       { return target{} }
func (in InChat) target() target     { return target{chat: in.ID} }
func (in rawBody) target() target    { return target{chat: in.ID, body: in.Body} }
func (in InRun) target() target      { return target{chat: in.ID, name: in.Run} }
func (in inSchedule) target() target { return target{chat: in.ID, name: in.Schedule} }
func (in inArchive) target() target  { return target{name: in.Name} }

// rowOutput is the answer of a row.
type rowOutput struct{ Body any }

// serveShape registers a row whose requests are of one shape.
func serveShape[I input](s *Server, a huma.API, op huma.Operation, row verbs.Row) {
	serve(func(s *Server, ctx context.Context, in *I) (*rowOutput, error) {
		t := (*in).target()
		v, err := row.AtFront(ctx, s.opt.Chats, t.chat, t.decode)
		if _, none := v.(verbs.None); err != nil || none {
			return nil, err
		}
		return &rowOutput{v}, nil
	})(s, a, op)
}

// decode reads the arguments of the verb.
func (t target) decode(args any) error {
	switch a := args.(type) {
	case *string:
		*a = t.name
	case *chat.ArchiveName:
		*a = chat.ArchiveName(t.name)
	}
	if t.body == nil {
		return nil
	}
	if err := json.Unmarshal(t.body, args); err != nil {
		detail := &huma.ErrorDetail{Location: "body", Message: err.Error()}
		return fromHuma(http.StatusUnprocessableEntity, "validation failed", detail)
	}
	return nil
}

type (
	chatBody[T any] struct {
		InChat
		Body T
	}
	bodyOf[T any]     struct{ Body T }
	withStatus[T any] struct {
		Status int
		Body   T
	}
)
