package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// generous is longer than anything here takes on a slow machine.
const generous = 2 * time.Minute

// withProgress calls use with an agent over stdio and with one over HTTP, each of which counts
// progress notifications.
func withProgress(t *testing.T, use func(t *testing.T, mem *apitest.Memory, s *sdk.ClientSession, heard <-chan *sdk.ProgressNotificationParams)) {
	old := progressEvery
	progressEvery = 10 * time.Millisecond
	t.Cleanup(func() { progressEvery = old })
	for _, over := range []string{"stdio", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			c, mem, id, socket := daemonOn(t)
			heard := make(chan *sdk.ProgressNotificationParams, 1000)
			opt := &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
				heard <- r.Params
			}}
			if over == "stdio" {
				use(t, mem, agentWith(t, c, id, opt), heard)
				return
			}
			s := must.Get(webWith(t, socket, id, opt))(t)
			use(t, mem, s, heard)
		})
	}
}

// A long call sends progress notifications while it runs, and then its answer.
func TestProgress(t *testing.T) {
	withProgress(t, func(t *testing.T, mem *apitest.Memory, s *sdk.ClientSession, heard <-chan *sdk.ProgressNotificationParams) {
		enough := make(chan struct{})
		mem.OnRun = func(ctx context.Context, _ chat.RunSpec) (chat.RunResult, error) {
			select {
			case <-enough:
			case <-ctx.Done():
			}
			return chat.RunResult{Stdout: "at last"}, nil
		}
		go func() {
			defer close(enough)
			last := 0.0
			for range 3 {
				select {
				case p := <-heard:
					if p.ProgressToken != "mine" || p.Progress <= last || !strings.HasPrefix(p.Message, "exec: ") {
						t.Errorf("heard %+v after %v", p, last)
					}
					last = p.Progress
				case <-time.After(generous):
					t.Error("no progress was heard")
				}
			}
		}()
		p := &sdk.CallToolParams{Name: "exec", Arguments: json.RawMessage(`{"command": "x"}`)}
		p.SetProgressToken("mine")
		r, err := s.CallTool(t.Context(), p)
		if err != nil || r.IsError || !strings.Contains(r.Content[0].(*sdk.TextContent).Text, "at last") {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

// TestNoProgress: an agent without a progress token gets no progress notification.
func TestNoProgress(t *testing.T) {
	withProgress(t, func(t *testing.T, mem *apitest.Memory, s *sdk.ClientSession, heard <-chan *sdk.ProgressNotificationParams) {
		mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
			time.Sleep(10 * progressEvery)
			return chat.RunResult{}, nil
		}
		if got, bad := call(t, s, "exec", `{"command": "x"}`); bad {
			t.Error(got)
		}
		if len(heard) > 0 {
			t.Errorf("heard %+v", <-heard)
		}
	})
}

// TestPollEndsBeforeAPartOfACharacter: its rest comes with the next poll.
func TestPollEndsBeforeAPartOfACharacter(t *testing.T) {
	o := chat.RunOutput{State: chat.RunRunning, Cursor: "4-0", Frames: []chat.Frame{chat.NewFrame(chat.Stdout, time.Now(), []byte("caf\xc3"))}}
	got, err := tools{}.polled(t.Context(), "run-1", o)
	if err != nil || got.value.Stdout != "caf" || got.value.Cursor != "3-0" || got.value.StdoutReplaced != 0 {
		t.Errorf("%+v, %v", got.value, err)
	}
}

// A background run is started, polled, written to and ended, over both transports.
func TestBackgroundTools(t *testing.T) {
	withProgress(t, func(t *testing.T, _ *apitest.Memory, s *sdk.ClientSession, _ <-chan *sdk.ProgressNotificationParams) {
		ended := structured[runPiece](t, s, "run_poll", fmt.Sprintf(`{"run": %q, "wait": "30s"}`, structured[chat.Run](t, s, "run_start", `{"command": "echo hello"}`).ID))
		if ended.State != chat.RunEnded || ended.Stdout != "hello\n" || ended.Result == nil || ended.Result.Exit != 0 || ended.Result.Stdout != "" {
			t.Errorf("%+v %+v", ended, ended.Result)
		}
		run := structured[chat.Run](t, s, "run_start", `{"argv": ["wait"], "open_stdin": true}`)
		expect.True(t, run.State == chat.RunRunning && run.Background, "%+v", run)
		if got, bad := call(t, s, "run_poll", fmt.Sprintf(`{"run": %q}`, run.ID)); bad || !strings.Contains(got, "the run goes on; poll again with cursor 0-0") {
			t.Errorf("%v %s", bad, got)
		}
		if got, bad := call(t, s, "run_stdin", fmt.Sprintf(`{"run": %q, "text": "one\n"}`, run.ID)); bad || got != "4 bytes written" {
			t.Errorf("%v %s", bad, got)
		}
		if got, bad := call(t, s, "run_stdin", fmt.Sprintf(`{"run": %q, "text": "two\n", "close": true}`, run.ID)); bad || !strings.Contains(got, "closed") {
			t.Errorf("%v %s", bad, got)
		}
		over := structured[runPiece](t, s, "run_poll", fmt.Sprintf(`{"run": %q, "wait": "1m"}`, run.ID))
		expect.True(t, over.State == chat.RunEnded && over.Stdout == "one\ntwo\n", "%+v", over)
		if got, bad := call(t, s, "run_poll", fmt.Sprintf(`{"run": %q, "cursor": %q}`, run.ID, over.Cursor)); bad || !strings.Contains(got, "exit code 0") {
			t.Errorf("%v %s", bad, got)
		}
		latin := structured[chat.Run](t, s, "run_start", `{"command": "latin"}`)
		poll := fmt.Sprintf(`{"run": %q}`, latin.ID)
		if got := structured[runPiece](t, s, "run_poll", poll); got.Stdout != "caf\ufffd\n" || got.StdoutReplaced != 1 {
			t.Errorf("bytes that are no UTF-8: %+v", got)
		}
		for tool, args := range map[string]string{"run_poll": poll, "exec": `{"command": "latin"}`} {
			if got, bad := call(t, s, tool, args); bad || !strings.Contains(got, "1 bytes of stdout and 0 of stderr are no UTF-8") {
				t.Errorf("%s of bytes that are no UTF-8: %s", tool, got)
			}
		}
		third := structured[chat.Run](t, s, "run_start", `{"command": "wait"}`)
		if got, bad := call(t, s, "run_end", fmt.Sprintf(`{"run": %q}`, third.ID)); bad {
			t.Error(got)
		}
		if got := structured[runPiece](t, s, "run_poll", fmt.Sprintf(`{"run": %q}`, third.ID)); got.State != chat.RunEnded {
			t.Errorf("%+v", got)
		}
		for tool, args := range map[string]string{
			"run_poll": `{"run": "none"}`, "run_end": `{"run": "none"}`, "run_stdin": `{"run": "none", "text": "x"}`,
		} {
			got, bad := call(t, s, tool, args)
			expect.True(t, bad && strings.HasPrefix(got, "not_found: "), "%s %s: %s", tool, args, got)
		}
		for tool, args := range map[string]string{"run_start": `{}`, "run_poll": `{"run": "r", "wait": "61s"}`, "run_stdin": `{"run": "r"}`} {
			got, bad := call(t, s, tool, args)
			expect.True(t, bad && strings.HasPrefix(got, "invalid: "), "%s %s: %s", tool, args, got)
		}
	})
}

// structured is the structured part of an answer.
func structured[T any](t *testing.T, s *sdk.ClientSession, name, args string) (out T) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	must.True(t, err == nil && !r.IsError, "%s %s: %+v %v", name, args, r, err)
	b := must.Get(json.Marshal(r.StructuredContent))(t)
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s %s: %s: %v", name, args, b, err)
	}
	return out
}

// Every tool has a title, hints and the schema of its answer, and no tool that only reads is marked
// as changing or destroying anything.
func TestHints(t *testing.T) {
	c, _, id := daemon(t)
	list := must.Get(agent(t, c, id).ListTools(t.Context(), nil))(t)
	reads := map[string]bool{"read_file": true, "list_dir": true, "terminal_read": true, "explain": true, "run_poll": true}
	for _, tool := range list.Tools {
		h := tool.Annotations
		out, err := json.Marshal(tool.OutputSchema)
		if tool.Title == "" || h == nil || h.Title != tool.Title || h.DestructiveHint == nil || h.OpenWorldHint == nil || err != nil || !strings.Contains(string(out), `"type":"object"`) {
			t.Errorf("%s: %q %+v %s", tool.Name, tool.Title, h, out)
			continue
		}
		if h.ReadOnlyHint != reads[tool.Name] || h.ReadOnlyHint && (*h.DestructiveHint || *h.OpenWorldHint) {
			t.Errorf("%s: %+v", tool.Name, h)
		}
		if lost := tool.Name != "append_file" && !h.ReadOnlyHint; *h.DestructiveHint != lost {
			t.Errorf("%s: destructive is %v", tool.Name, *h.DestructiveHint)
		}
	}
}

// TestStructured: an answer's texts are also in its value, and a refusal has no value.
func TestStructured(t *testing.T) {
	c, mem, id := daemon(t)
	s := agent(t, c, id)
	if r := structured[chat.RunResult](t, s, "exec", `{"command": "false"}`); r.Exit != 1 || r.Stderr != "no\n" {
		t.Errorf("%+v", r)
	}
	long := strings.Repeat("x", 3*MaxText)
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{Stdout: long + "\xff"}, nil
	}
	if r := structured[chat.RunResult](t, s, "exec", `{"command": "x"}`); len(r.Stdout) > MaxText+100 {
		t.Errorf("%d bytes", len(r.Stdout))
	}
	if a := structured[map[string]any](t, s, "write_file", `{"path": "a", "content": "é"}`); a["created"] != true || a["size"] != 2.0 || a["permissions"] != "0600" || a["mode"] != 384.0 {
		t.Errorf("%v", a)
	}
	if a := structured[map[string]any](t, s, "read_file", `{"path": "a"}`); a["content"] != "é" {
		t.Errorf("%v", a)
	}
	if a := structured[map[string]any](t, s, "list_dir", `{}`); a["content"] != "FILE: a\n" {
		t.Errorf("%v", a)
	}
	if v := structured[terminal](t, s, "terminal_send", `{"text": "ls", "enter": true, "wait": {"until": "prompt"}}`); v.Until != "prompt" || v.Exit == nil || *v.Exit != 0 || v.Cursor == nil || *v.Cursor != 3 {
		t.Errorf("%+v", v)
	}
	if v := structured[terminal](t, s, "terminal_read", `{}`); v.Rows != 24 || v.CursorRow == nil {
		t.Errorf("%+v", v)
	}
	e := structured[chat.Explained](t, s, "explain", `{"path": "x", "op": "read"}`)
	expect.True(t, e.Verdict == "allow", "%+v", e)
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "read_file", Arguments: json.RawMessage(`{"path": "nothing"}`)})
	expect.True(t, err == nil && r.IsError && r.StructuredContent == nil, "a refusal: %+v %v", r, err)
}

// post sends one message of an agent, and returns the answer once its head has arrived.
func post(t *testing.T, socket string, id chat.ID, session, text string) *http.Response {
	t.Helper()
	over := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://chatd/v1/chats/"+string(id)+"/mcp", strings.NewReader(text))
	must.Do(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	res := must.Get(over.Do(r))(t)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

const callThree = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`

// Over HTTP a notification of the same session ends a call, and one of another, or without a
// session, does not.
func TestCancelledOverHTTP(t *testing.T) {
	_, mem, id, socket := daemonOn(t)
	session := post(t, socket, id, "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`).Header.Get(sessionHeader)
	must.True(t, session != "", "initialize names no session")
	begun, ended := untilCancelled(mem)
	answer := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(post(t, socket, id, session, callThree).Body)
		answer <- string(b)
	}()
	<-begun
	for _, other := range []struct{ session, request string }{{"", "3"}, {"another", "3"}, {session, "4"}, {session, `"3"`}} {
		r := post(t, socket, id, other.session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+other.request+`}}`)
		expect.True(t, r.StatusCode == http.StatusAccepted, "%+v: %s", other, r.Status)
	}
	select {
	case <-ended:
		t.Fatal("another's notification ended the call")
	case <-time.After(100 * time.Millisecond):
	}
	post(t, socket, id, session, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"enough"}}`)
	select {
	case <-ended:
	case <-time.After(generous):
		t.Fatal("the call goes on")
	}
	if got := <-answer; !strings.Contains(got, `cancelled`) || !strings.Contains(got, `"isError":true`) {
		t.Errorf("the answer: %s", got)
	}
}

// A request that its agent closes ends its call, even if the answer already streams.
func TestClosedRequestEndsTheCall(t *testing.T) {
	_, mem, id, socket := daemonOn(t)
	begun, ended := untilCancelled(mem)
	old := progressEvery
	progressEvery = 10 * time.Millisecond
	t.Cleanup(func() { progressEvery = old })
	res := post(t, socket, id, "", strings.Replace(callThree, `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1))
	kind := res.Header.Get("Content-Type")
	expect.True(t, kind == "text/event-stream", "the answer is %s", kind)
	<-begun
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	expect.True(t, err == nil, "%q %v", line, err)
	_ = res.Body.Close()
	select {
	case <-ended:
	case <-time.After(generous):
		t.Fatal("the call goes on")
	}
}

// TestMCPProblems: a refusal by the SDK in plain text becomes a problem.
func TestMCPProblems(t *testing.T) {
	_, _, id, socket := daemonOn(t)
	for _, text := range []string{`{}`, `[]`, `7`} {
		res := post(t, socket, id, "", text)
		b, _ := io.ReadAll(res.Body)
		if kind := res.Header.Get("Content-Type"); res.StatusCode < 400 || kind != "application/problem+json" && kind != "application/json" {
			t.Errorf("%s: %d %s %s", text, res.StatusCode, kind, b)
		}
	}
}
