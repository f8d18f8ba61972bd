package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/client"
)

// chatParam is the chat's id in a path.
var chatParam = param("path", "id", "string", "The chat: 16 lower-case hex digits.")

// rawContent is a body of any bytes, sent as a stream.
var rawContent = map[string]*huma.MediaType{client.ByteType: {Schema: &huma.Schema{Type: "string",
	Format: "binary"}}}

// param is a parameter; one in the path is always there.
func param(in, name, kind, doc string) *huma.Param {
	return &huma.Param{Name: name, In: in, Required: in == "path", Description: doc,
		Schema: &huma.Schema{Type: kind}}
}

// jsonContent is a value in JSON of the type of v.
func jsonContent(a huma.API, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{
		client.JSONType: {Schema: huma.SchemaFromType(a.OpenAPI().Components.Schemas, reflect.TypeOf(v))},
	}
}

// typeContent refers to a type.
func typeContent(a huma.API, t reflect.Type) map[string]*huma.MediaType {
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
