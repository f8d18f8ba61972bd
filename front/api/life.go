package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// The rows about the life of chats.
var (
	create = route{"POST", "/v1/chats", bridges, jsonBody, "create", 201, "Create a chat, or find the one of this external id (200).", serve((*Server).create)}
	list   = route{"GET", "/v1/chats", bridges, nothing, "list", 200, "List the caller's chats; an operator's are all.", serve((*Server).list)}
	show   = route{"GET", "/v1/chats/{id}", bridges, nothing, "show", 200, "Show one chat.", plain(Chats.Get)}
	patch  = route{"PATCH", "/v1/chats/{id}", bridges, jsonBody, "patch", 200, "Change a chat by a JSON merge patch (RFC 7396), as a whole or not at all. changed in the answer says what holds now and what from the next wake.", servePatch}
	reap   = route{"DELETE", "/v1/chats/{id}", bridges, nothing, "reap", 204, "End a chat and remove every trace of it; with archive=true, archive it first (200).", serve((*Server).reap)}
	wake   = route{"POST", "/v1/chats/{id}/wake", bridges, nothing, "wake", 200, "Give a chat a session.", plain(Chats.Wake)}
	sleep  = route{"POST", "/v1/chats/{id}/sleep", bridges, nothing, "sleep", 200, "End a chat's processes and keep its home.", plain(Chats.Sleep)}
	freeze = route{"POST", "/v1/chats/{id}/freeze", bridges, nothing, "freeze", 200, "Stop an awake chat's processes, which keep their memory: for its owner until its next use, for an operator until thaw.", plain(Chats.Freeze)}
	thaw   = route{"POST", "/v1/chats/{id}/thaw", bridges, nothing, "thaw", 200, "Let a frozen chat's processes go on. One that an operator froze is thawed by operators alone.", plain(Chats.Thaw)}

	lifeRoutes = []route{create, list, show, patch, reap, wake, sleep, freeze, thaw}
)

type (
	createInput struct{ Body chat.Spec }
	listInput   struct {
		Owner      string `query:"owner" maxLength:"64" doc:"Only chats of this owner."`
		ExternalID string `query:"external_id" maxLength:"512" doc:"Only the chat of this external id."`
		Label      string `query:"label" maxLength:"321" doc:"key=value, or key for any value."`
		Awake      string `query:"awake" enum:"true,false" doc:"Only awake or only sleeping chats."`
		Limit      int    `query:"limit" minimum:"1" maximum:"1000" doc:"At most so many; the server may return fewer."`
		Cursor     string `query:"cursor" maxLength:"1024" doc:"What next said on the page before."`
	}

	createOutput struct {
		Status int
		Body   chat.Chat
	}
)

func (s *Server) create(ctx context.Context, in *createInput) (*createOutput, error) {
	c, created, err := s.opt.Chats.Create(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	out := &createOutput{Status: http.StatusOK, Body: c}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// Create is POST /v1/chats; created is status 201.
func (c *Client) Create(ctx context.Context, spec chat.Spec) (out chat.Chat, created bool, err error) {
	status, err := c.do(ctx, create, target{}, spec, &out)
	return out, status == http.StatusCreated, err
}

func (s *Server) list(ctx context.Context, in *listInput) (*bodyOf[chat.Page], error) {
	f := chat.Filter{Owner: in.Owner, ExternalID: in.ExternalID, Label: in.Label, Limit: in.Limit, Cursor: in.Cursor}
	if in.Awake != "" {
		awake := in.Awake == "true"
		f.Awake = &awake
	}
	page, err := s.opt.Chats.List(ctx, f)
	if page.Chats == nil {
		page.Chats = []chat.Chat{}
	}
	return &bodyOf[chat.Page]{page}, err
}

// patchType is the media type of PATCH (RFC 7396); plain JSON is accepted as well.
const patchType = "application/merge-patch+json"

// servePatch registers a route of its own because null in the body differs from a missing field.
func servePatch(s *Server, a huma.API, op huma.Operation) {
	text, no := &huma.Schema{Type: "string"}, &huma.Schema{Type: "null"}
	orNull := func(of *huma.Schema) *huma.Schema {
		return &huma.Schema{AnyOf: []*huma.Schema{of, no}}
	}
	merge := func(value *huma.Schema, what string) *huma.Schema {
		all := orNull(&huma.Schema{Type: "object", AdditionalProperties: orNull(value)})
		all.Description = "New values of " + what + " by name; null takes one away, or all."
		return all
	}
	list := orNull(&huma.Schema{Type: "array", Items: text})
	list.Description = "As in create; null is none."
	body := &huma.MediaType{Schema: &huma.Schema{Type: "object", AdditionalProperties: false,
		Properties: map[string]*huma.Schema{
			"labels": merge(text, "labels"), "env": merge(text, "its own variables"),
			"limits":  merge(&huma.Schema{}, "limits, as the answers have them,"),
			"profile": {Type: "string", Description: "Another named policy; uid and home stay."},
			"force": {Type: "boolean",
				Description: "Set a memory_max below what it holds: cgroup v2 ends processes."},
			"egress_add": list, "egress_remove": list,
		}}}
	op.Parameters = []*huma.Param{chatParam}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{patchType: body, jsonType: body}}
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "The chat as it is now.", Content: jsonContent(a, chat.Chat{})}
	s.serveBeside(a, op, s.patch)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	answerBody(s, w, r, http.StatusOK, s.opt.Chats.Patch)
}

// Patch is PATCH /v1/chats/{id}.
func (c *Client) Patch(ctx context.Context, id chat.ID, p chat.Patch) (chat.Chat, error) {
	if err := p.Validate(); err != nil {
		return chat.Chat{}, err
	}
	return askFor[chat.Chat](ctx, c, patch, target{chat: id}, p)
}
