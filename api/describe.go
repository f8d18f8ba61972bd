package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// chatParam is the id in the path of what is asked of one chat.
var chatParam = param("path", "id", "string", "The chat: 16 lower-case hex digits.")

// rawContent is what is sent as it comes, whatever it is.
var rawContent = map[string]*huma.MediaType{byteType: {Schema: &huma.Schema{Type: "string", Format: "binary"}}}

// param is a parameter; one in the path is always there.
func param(in, name, kind, doc string) *huma.Param {
	return &huma.Param{Name: name, In: in, Required: in == "path", Description: doc, Schema: &huma.Schema{Type: kind}}
}

// jsonContent is a value in JSON of the type of v.
func jsonContent(a huma.API, v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{jsonType: {Schema: huma.SchemaFromType(a.OpenAPI().Components.Schemas, reflect.TypeOf(v))}}
}

// textContent is what is sent line by line, each with JSON in it.
func textContent(kind string) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{kind: {Schema: &huma.Schema{Type: "string"}}}
}

// problemResponse is what is answered in place of the usual answer.
func problemResponse() map[string]*huma.Response {
	return map[string]*huma.Response{"default": {Description: "Error", Content: map[string]*huma.MediaType{
		problemType: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}}}
}

// serveBeside registers a route that huma describes and does not serve, for it would read the
// body or write the answer whole.
func (s *Server) serveBeside(a huma.API, op huma.Operation, h http.HandlerFunc) {
	a.OpenAPI().AddOperation(&op)
	s.mux.HandleFunc(op.Method+" "+op.Path, h)
}
