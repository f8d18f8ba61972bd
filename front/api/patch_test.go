package api

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
)

func TestLabels(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		mem := apitest.New()
		apitest.Labels(chat.WithCaller(t.Context(), chat.Caller{Name: "root", Role: chat.RoleOperator}), t, mem)
	})
	t.Run("client", func(t *testing.T) {
		socket, _ := start(t, ServerOptions{})
		apitest.Labels(t.Context(), t, clientAt(t, socket))
	})
}

func patchOf(kind, id, body string) string {
	return fmt.Sprintf("PATCH /v1/chats/%s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", id, kind, len(body), body)
}

func TestHostilePatches(t *testing.T) {
	socket, _, _, id := withChat(t, ServerOptions{})
	for body, status := range map[string]int{
		`{}`: 400, `null`: 400, `[]`: 400, ``: 400, `{"labels":1}`: 400, `{"labels":{"a":7}}`: 400, `{"Labels":{"a":"b"}}`: 400,
		`{"labels":{"a":"b"},"owner":"web"}`: 400, `{"labels":{"a":"b","a":"c"}}`: 400, `{"labels":{"a":{"b":"c"}}}`: 400,
		`{"labels":{"a":"b"}}`: 200, `{"labels":{"a":null}}`: 200, `{"labels":null}`: 200,
	} {
		for _, kind := range []string{client.JSONType, client.PatchType} {
			if g := raw(t, socket, patchOf(kind, string(id), body)); g.status != status || status == 400 && g.problem.Kind != "invalid" {
				t.Errorf("%s %s: %d %s", kind, body, g.status, g.body)
			}
		}
	}
	if g := raw(t, socket, patchOf("text/plain", string(id), `{"labels":null}`)); g.status != 415 {
		t.Errorf("text: %d %s", g.status, g.body)
	}
	if g := raw(t, socket, "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: "+client.PatchType+"\r\nContent-Length: 2\r\n\r\n{}"); g.status != 415 {
		t.Errorf("a merge patch to create: %d %s", g.status, g.body)
	}
	var c chat.Chat
	g := raw(t, socket, patchOf(client.PatchType, string(id), `{"labels":{"k":"v"}}`))
	err := json.Unmarshal([]byte(g.body), &c)
	expect.True(t, err == nil && c.ID == id && c.Labels["k"] == "v", "the answer: %v %s", err, g.body)
}
