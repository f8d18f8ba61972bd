//go:build linux

package api

import (
	"context"
	"os"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestChatsDecide: [verbs.Chats] alone decides what is allowed and valid, so that each refusal is audited.
// The API itself refuses only unreadable requests, and callers without the route's role.
func TestChatsDecide(t *testing.T) {
	needRoot(t)
	socket, mem := start(t, peerServerOpt)
	must.Do(t, os.Chmod(socket, 0o666))
	var asked []chat.Spec
	mem.OnCreate = func(_ context.Context, s chat.Spec) error {
		asked = append(asked, s)
		return nil
	}
	foreign := post("/v1/chats", `{"external_id":"a","owner":"user64002"}`)
	a := as(t, socket, bridgeCred, foreign)[0]
	expect.True(t, a.Status == 403 && a.Problem.Kind == "denied", "a bridge names another owner: %+v", a)
	expect.True(t, len(asked) == 1 && asked[0].Owner == "user64002",
		"behind the API arrived %+v, want the foreign owner's create", asked)
}
