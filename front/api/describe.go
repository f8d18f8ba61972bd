package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/client"
)

// chatParam is the chat's id in a path.
var chatParam = &huma.Param{Name: "id", In: "path", Required: true,
	Description: "The chat: 16 lower-case hex digits.", Schema: &huma.Schema{Type: "string"}}

// rawContent is a body of any bytes, sent as a stream.
var rawContent = map[string]*huma.MediaType{client.ByteType: {Schema: &huma.Schema{Type: "string",
	Format: "binary"}}}

// jsonContent refers to a type.
func jsonContent(a huma.API, t reflect.Type) map[string]*huma.MediaType {
	schema := a.OpenAPI().Components.Schemas.Schema(t, true, "")
	return map[string]*huma.MediaType{client.JSONType: {Schema: schema}}
}

// textContent is a stream of lines with JSON in each.
func textContent(kind string) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{kind: {Schema: &huma.Schema{Type: "string"}}}
}

// problemResponse is the answer to a request that fails.
func problemResponse() map[string]*huma.Response {
	return map[string]*huma.Response{"default": {Description: "Error", Content: map[string]*huma.MediaType{
		client.ProblemType: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}}}
}

// serveBeside registers a route that huma describes but does not serve: huma would read the body or
// write the answer whole.
func (s *Server) serveBeside(a huma.API, op huma.Operation, h http.HandlerFunc) {
	a.OpenAPI().AddOperation(&op)
	s.mux.HandleFunc(op.Method+" "+op.Path, h)
}
