package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
)

type listInput struct {
	Owner      string `query:"owner" maxLength:"64" doc:"Only chats of this owner."`
	ExternalID string `query:"external_id" maxLength:"512" doc:"Only the chat of this external id."`
	Label      string `query:"label" maxLength:"321" doc:"key=value, or key for any value."`
	Awake      string `query:"awake" enum:"true,false" doc:"Only awake or only sleeping chats."`
	Limit      int    `query:"limit" minimum:"1" maximum:"1000" doc:"At most so many; the server may return fewer."`
	Cursor     string `query:"cursor" maxLength:"1024" doc:"What next said on the page before."`
}

func (s *Server) create(
	ctx context.Context, in *struct{ Body chat.Spec },
) (*withStatus[chat.Chat], error) {
	c, created, err := s.opt.Chats.Create(ctx, in.Body)
	return &withStatus[chat.Chat]{madeStatus(created), c}, err
}

func (s *Server) list(ctx context.Context, in *listInput) (*bodyOf[chat.Page], error) {
	f := chat.Filter{Owner: in.Owner, ExternalID: in.ExternalID, Label: in.Label, Limit: in.Limit,
		Cursor: in.Cursor}
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

// servePatch describes the body, in which null differs from a missing field.
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
	op.RequestBody = &huma.RequestBody{Required: true,
		Content: map[string]*huma.MediaType{client.PatchType: body, client.JSONType: body}}
	row, _ := verbs.Find("patch")
	serveShape[rawBody](s, a, op, row)
}
