//go:build long

package roottest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// object is a JSON object.
type object = map[string]any

// model is a scripted server of models. It speaks the streaming part of four protocols: Anthropic
// Messages, OpenAI Responses and Chat Completions, and Gemini generateContent. A question that
// has "slowly" in it is answered after a while, one that begins with "run: " by a call of the
// agent's shell tool, and one that begins with "call: " by a call of the tool that it names.
type model struct {
	mu      sync.Mutex
	asked   []string // texts of the conversation, as the agent's requests ended with them
	results []string // what the agent's tool gave back
	refused []string // requests without a key
}

// slowly is how long an answer takes whose question wants it so.
const slowly = 8 * time.Second

// modelURL is where it is.
const modelURL = "https://api.example.test:8443"

// modelKeys are the keys that it takes, and where it looks for each; agents have the variables of
// the secrets.
var modelKeys = []struct{ secret, env, header, value string }{
	{"anthropic", "ANTHROPIC_API_KEY", "x-api-key: $", "sk-ant-real-0123456789abcdefghij"},
	{"openai", "OPENAI_API_KEY", "Authorization: Bearer $", "sk-real-0123456789abcdefghijklmn"},
	{"gemini", "GEMINI_API_KEY", "x-goog-api-key: $", "AIza-real-0123456789abcdefghijkl"},
}

// newModel starts one on the outside. This host trusts its certificate.
func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{}
	serveSecure(t, newInternet(t), "8443", m, "api.example.test")
	return m
}

// hasKey reports whether a request has one of the keys in its place.
func hasKey(r *http.Request) bool {
	for _, k := range modelKeys {
		name, form, _ := strings.Cut(k.header, ": ")
		if r.Header.Get(name) == strings.Replace(form, "$", k.value, 1) {
			return true
		}
	}
	return false
}

// take returns what was asked and what tools gave back since the last call.
func (m *model) take() (asked, results []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked, results = m.asked, m.results
	m.asked, m.results = nil, nil
	return asked, results
}

// withoutKey returns the requests since the last call that had no key.
func (m *model) withoutKey() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.refused
	m.refused = nil
	return all
}

// answerTo is what the model says to a text of the conversation: a word that neither the question
// nor the screen before it has.
func answerTo(text string) string {
	sum := 0
	for _, b := range []byte(text) {
		sum = (sum*31 + int(b)) % 1_000_003
	}
	return fmt.Sprintf("Answer-%06d.", sum)
}

// reply is what a request is answered by: a text, or a call of a tool with its arguments.
type reply struct {
	text    string
	tool    string
	command object
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !hasKey(r) {
		m.mu.Lock()
		m.refused = append(m.refused, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header))
		m.mu.Unlock()
		http.Error(w, `{"error":{"message":"no key"}}`, http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(r.Body)
	var req object
	if err != nil || json.Unmarshal(body, &req) != nil {
		req = object{}
	}
	say := m.reply(req)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages"):
		sayAnthropic(w, say)
	case strings.HasSuffix(path, "/responses"):
		sayResponses(w, say)
	case strings.HasSuffix(path, "/chat/completions"):
		sayChat(w, say)
	case strings.HasSuffix(path, ":streamGenerateContent"):
		sayGemini(w, say)
	default:
		http.Error(w, `{"error":{"message":"not scripted"}}`, http.StatusNotFound)
	}
}

// reply records what was asked. A request without tools is for a title and the like.
func (m *model) reply(req object) reply {
	text, result := lastSaid(req)
	tools := toolsOf(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(tools) == 0:
		return reply{text: "A title"}
	case result:
		m.results = append(m.results, text)
		return reply{text: answerTo("a tool")}
	}
	m.asked = append(m.asked, text)
	if strings.Contains(text, "slowly") {
		m.mu.Unlock()
		time.Sleep(slowly)
		m.mu.Lock()
	}
	if call, found := strings.CutPrefix(text, "call: "); found {
		var args object
		name, said, _ := strings.Cut(call, " ")
		if json.Unmarshal([]byte(said), &args) == nil {
			return reply{tool: name, command: args}
		}
	}
	if command, found := strings.CutPrefix(text, "run: "); found {
		return callOf(tools, command)
	}
	return reply{text: answerTo(text)}
}

// callOf calls the agent's shell tool, by the name that it has for it.
func callOf(tools []object, command string) reply {
	for _, tool := range tools {
		switch name, _ := tool["name"].(string); name {
		case "Bash", "bash", "run_shell_command":
			return reply{tool: name, command: object{"command": command, "description": "as asked"}}
		case "exec_command":
			return reply{tool: name, command: object{"cmd": command}}
		}
	}
	return reply{text: "no tool"}
}

// toolsOf are the tools that a request offers, each with its name.
func toolsOf(req object) (tools []object) {
	for _, tool := range list(req["tools"]) {
		if f, ok := tool["function"].(object); ok {
			tool = f
		}
		tools = append(append(tools, tool), list(tool["functionDeclarations"])...)
	}
	return tools
}

// lastSaid is the end of the conversation: the user's text, or what a tool gave back.
func lastSaid(req object) (text string, result bool) {
	for _, key := range []string{"messages", "input", "contents"} {
		for _, said := range slices.Backward(list(req[key])) {
			if said["type"] == "function_call_output" {
				return textOf(said["output"]), true
			}
			if role := said["role"]; role == "tool" || role == "user" {
				return lastPart(said, role == "tool")
			}
		}
	}
	return "", false
}

// lastPart is the last part of a message.
func lastPart(said object, result bool) (string, bool) {
	parts := append(list(said["content"]), list(said["parts"])...)
	if len(parts) == 0 {
		return textOf(said["content"]), result
	}
	last := parts[len(parts)-1]
	if f, ok := last["functionResponse"].(object); ok {
		return textOf(f["response"]), true
	}
	if last["type"] == "tool_result" {
		return textOf(last["content"]), true
	}
	return textOf(last["text"]), result
}

// list is an array of objects.
func list(v any) (all []object) {
	items, _ := v.([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// textOf is a string as it is, and of anything else its JSON.
func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// event writes one server-sent event.
func event(w http.ResponseWriter, data object) {
	w.Header().Set("Content-Type", "text/event-stream")
	if name, ok := data["type"].(string); ok {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	fmt.Fprintf(w, "data: %s\n\n", textOf(data))
}

// sayAnthropic follows docs.anthropic.com/en/api/messages-streaming.
func sayAnthropic(w http.ResponseWriter, r reply) {
	event(w, object{"type": "message_start", "message": object{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
		"content": []any{}, "usage": object{"input_tokens": 10, "output_tokens": 1}}})
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": r.text}, "end_turn"
	if r.tool != "" {
		block = object{"type": "tool_use", "id": "toolu_1", "name": r.tool, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": textOf(r.command)}, "tool_use"
	}
	event(w, object{"type": "content_block_start", "index": 0, "content_block": block})
	event(w, object{"type": "content_block_delta", "index": 0, "delta": delta})
	event(w, object{"type": "content_block_stop", "index": 0})
	event(w, object{"type": "message_delta", "delta": object{"stop_reason": stop}, "usage": object{"output_tokens": 10}})
	event(w, object{"type": "message_stop"})
}

// sayResponses follows platform.openai.com/docs/api-reference/responses-streaming.
func sayResponses(w http.ResponseWriter, r reply) {
	item := object{"type": "message", "id": "item_1", "role": "assistant", "status": "completed", "content": []any{object{"type": "output_text", "text": r.text}}}
	if r.tool != "" {
		item = object{"type": "function_call", "id": "item_1", "call_id": "call_1", "name": r.tool, "arguments": textOf(r.command), "status": "completed"}
	}
	event(w, object{"type": "response.created", "response": object{"id": "resp_1"}})
	event(w, object{"type": "response.output_item.added", "output_index": 0, "item": item})
	if r.tool == "" {
		event(w, object{"type": "response.output_text.delta", "item_id": "item_1", "output_index": 0, "content_index": 0, "delta": r.text})
	}
	event(w, object{"type": "response.output_item.done", "output_index": 0, "item": item})
	event(w, object{"type": "response.completed", "response": object{"id": "resp_1", "output": []any{item},
		"usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}})
}

// sayChat follows platform.openai.com/docs/api-reference/chat/streaming.
func sayChat(w http.ResponseWriter, r reply) {
	delta, stop := object{"role": "assistant", "content": r.text}, "stop"
	if r.tool != "" {
		call := object{"index": 0, "id": "call_1", "type": "function", "function": object{"name": r.tool, "arguments": textOf(r.command)}}
		delta, stop = object{"role": "assistant", "tool_calls": []any{call}}, "tool_calls"
	}
	for _, choice := range []object{{"index": 0, "delta": delta}, {"index": 0, "delta": object{}, "finish_reason": stop}} {
		event(w, object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": []any{choice}})
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// sayGemini follows ai.google.dev/api/generate-content.
func sayGemini(w http.ResponseWriter, r reply) {
	part := object{"text": r.text}
	if r.tool != "" {
		part = object{"functionCall": object{"name": r.tool, "args": r.command}}
	}
	event(w, object{"candidates": []any{object{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": []any{part}}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
}
