package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/internal/verbs"
)

// Web answers streamable HTTP for any number of chats. It keeps no state between requests; during
// calls it records which notification cancels which call.
type Web struct {
	version string
	calls   underWay
}

// NewWeb returns a Web that announces version.
func NewWeb(version string) *Web { return &Web{version: version} }

// sessionHeader names an agent's session. It is only a name, made at initialize, within which an
// agent's request ids are unique.
const sessionHeader = "Mcp-Session-Id"

// Handler answers for chat id, one message and its answer at a time. Each call is made as
// the caller of its own request, and ends with it, or when the same caller cancels it in
// the same session. Its answer is JSON, or, where the agent asks for progress, a stream of
// events with the answer last. problem may be nil.
func (web *Web) Handler(chats verbs.Chats, id chat.ID, problem api.Problems) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "cannot read the message", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		messages := readMessages(body)
		caller := chat.CallerFrom(r.Context())
		key := func(request json.RawMessage) callKey {
			return callKey{caller.UID, caller.Role, id, r.Header.Get(sessionHeader), string(request)}
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		progress := false
		for _, m := range messages {
			switch {
			case m.Method == "initialize":
				w.Header().Set(sessionHeader, rand.Text())
			case m.Method == "notifications/cancelled":
				web.calls.cancel(key(m.Params.RequestID))
			case m.ID != nil:
				progress = progress || m.Params.Meta.ProgressToken != nil
				defer web.calls.enter(key(m.ID), cancel)()
			}
		}
		s, err := newServer(tools{chats, id, ctx, problem}, web.version)
		if err != nil {
			panic(err) // an invalid schema is a bug; package api recovers
		}
		sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
			&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: !progress}).ServeHTTP(w, r)
	})
}

// message has the fields of a message that are needed before the SDK reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// readMessages reads one message or a batch of them. The SDK refuses anything else.
func readMessages(body []byte) []message {
	var one message
	if json.Unmarshal(body, &one) == nil {
		return []message{one}
	}
	var batch []message
	_ = json.Unmarshal(body, &batch)
	return batch
}

// within is ctx with the caller of request, and ends when request does: the SDK passes a context of
// its own.
func within(ctx, request context.Context) (context.Context, context.CancelFunc) {
	if request == nil {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancel(chat.WithCaller(ctx, chat.CallerFrom(request)))
	stop := context.AfterFunc(request, cancel)
	return ctx, func() { stop(); cancel() }
}
