package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// patchType is RFC 7396's name for what PATCH takes; plain JSON is taken as well.
const patchType = "application/merge-patch+json"

// servePatch: in the body null is not the same as what is left out.
func servePatch(s *Server, a huma.API, op huma.Operation) {
	value := &huma.Schema{AnyOf: []*huma.Schema{{Type: "string"}, {Type: "null"}}}
	labels := &huma.Schema{AnyOf: []*huma.Schema{{Type: "object", AdditionalProperties: value}, {Type: "null"}},
		Description: "New values by name; null takes one away, or all."}
	body := &huma.MediaType{Schema: &huma.Schema{Type: "object", AdditionalProperties: false, Required: []string{"labels"},
		Properties: map[string]*huma.Schema{"labels": labels}}}
	op.Parameters = []*huma.Param{chatParam}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{patchType: body, jsonType: body}}
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "The chat as it is now.", Content: jsonContent(a, chat.Chat{})}
	s.serveBeside(a, op, s.patch)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	var p chat.Patch
	id, err := idAndBody(r, &p)
	var c chat.Chat
	if err == nil {
		c, err = s.opt.Chats.Patch(r.Context(), id, p)
	}
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	s.answerJSON(w, r, http.StatusOK, c)
}
