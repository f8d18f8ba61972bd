package mcp

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
)

// HTTP answers streamable HTTP for chat id, one request and one answer in JSON at a
// time: there are no sessions, so nothing is kept between two requests, and each call is
// made as the caller of its own request and ends with it. problem may be nil; version is what it says of itself.
func HTTP(chats api.Chats, id chat.ID, problem api.Problems, version string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := newServer(tools{chats, id, r.Context(), problem}, version)
		if err != nil {
			panic(err) // a schema that cannot be made, of no request's making; package api recovers
		}
		sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
			&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}).ServeHTTP(w, r)
	})
}

// within is ctx with the caller of request, and ends when request does: the SDK hands on
// a context of its own.
func within(ctx, request context.Context) (context.Context, context.CancelFunc) {
	if request == nil {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancel(chat.WithCaller(ctx, chat.CallerFrom(request)))
	stop := context.AfterFunc(request, cancel)
	return ctx, func() { stop(); cancel() }
}
