package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision/listen"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// daemon is a real server on a socket, with chats in memory; it returns a client and
// the id of a chat that is awake.
func daemon(t *testing.T) (*client.Client, *apitest.Memory, chat.ID) {
	t.Helper()
	c, mem, id, _ := daemonOn(t)
	return c, mem, id
}

func daemonOn(t *testing.T) (*client.Client, *apitest.Memory, chat.ID, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "chatd-mcp-") // a short path, for sun_path
	must.Do(t, err)
	t.Cleanup(func() {
		expect.NoError(t, os.RemoveAll(dir))
	})
	mem, socket := apitest.New(), filepath.Join(dir, "s")
	l := must.Get(listen.Unix(socket))(t)
	chats := must.Get(runs.Open(t.Context(), mem, runs.Options{}))(t)
	t.Cleanup(chats.Close)
	s := api.NewServer(api.ServerOptions{Chats: chats, Operators: []uint32{uint32(os.Getgid())},
		MCP: NewWeb("test").Handler})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c := client.NewClient(client.ClientOptions{Socket: socket})
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		expect.NoError(t, errors.Join(s.Shutdown(ctx), <-done))
	})
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	return c, mem, made.ID, socket
}

// agent is the SDK's client at the other end of Serve.
func agent(t *testing.T, c *client.Client, id chat.ID) *sdk.ClientSession {
	t.Helper()
	return agentWith(t, c, id, nil)
}

func agentWith(t *testing.T, c *client.Client, id chat.ID, opt *sdk.ClientOptions) *sdk.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		// Not t.Context(), which ends before the clean-up does.
		err := Serve(context.Background(), c, id, "test", inR, outW)
		done <- errors.Join(err, outW.Close())
	}()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "agent"}, opt).Connect(t.Context(), &sdk.IOTransport{Reader: outR, Writer: inW}, nil)
	must.Do(t, err)
	t.Cleanup(func() {
		expect.NoError(t, s.Close())
		// The answer to a cancelled call may still be sent to an agent that has gone.
		err := <-done
		expect.True(t, err == nil || errors.Is(err, io.ErrClosedPipe), "Serve: %v", err)
	})
	return s
}

// call is the texts of an answer, a line each, and isError.
func call(t *testing.T, s *sdk.ClientSession, name, args string) (string, bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	must.True(t, err == nil, "%s %s: %v", name, args, err)
	var texts []string
	for _, c := range r.Content {
		texts = append(texts, c.(*sdk.TextContent).Text)
	}
	return strings.Join(texts, "\n"), r.IsError
}

// web is the SDK's client over streamable HTTP, on the daemon's socket.
func web(t *testing.T, socket string, id chat.ID) (*sdk.ClientSession, error) {
	t.Helper()
	return webWith(t, socket, id, nil)
}

func webWith(t *testing.T, socket string, id chat.ID, opt *sdk.ClientOptions) (*sdk.ClientSession, error) {
	t.Helper()
	over := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	t.Cleanup(over.CloseIdleConnections)
	s, err := sdk.NewClient(&sdk.Implementation{Name: "agent"}, opt).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: "http://chatd/v1/chats/" + string(id) + "/mcp", HTTPClient: over, MaxRetries: -1}, nil)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

func TestTools(t *testing.T) {
	t.Run("stdio", func(t *testing.T) {
		c, mem, id := daemon(t)
		useTools(t, mem, agent(t, c, id))
	})
	t.Run("HTTP", func(t *testing.T) {
		_, mem, id, socket := daemonOn(t)
		s := must.Get(web(t, socket, id))(t)
		useTools(t, mem, s)
	})
}

// Over HTTP a call has the caller of its own request, and ends with the request.
func TestHTTPCaller(t *testing.T) {
	_, mem, id, socket := daemonOn(t)
	_, err := web(t, socket, "0123456789abcdef")
	expect.True(t, err != nil, "a chat that is not there has tools")
	s := must.Get(web(t, socket, id))(t)
	who := make(chan chat.Caller, 1)
	mem.OnRun = func(ctx context.Context, _ chat.RunSpec) (chat.RunResult, error) {
		who <- chat.CallerFrom(ctx)
		return chat.RunResult{}, nil
	}
	if got, bad := call(t, s, "exec", `{"command": "x"}`); bad {
		t.Fatal(got)
	}
	if got := <-who; got.UID != uint32(os.Getuid()) || got.Role != chat.RoleOperator {
		t.Errorf("the run is %+v's", got)
	}
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{}, errors.New("cannot open /var/lib/x")
	}
	if got, bad := call(t, s, "exec", `{"command": "x"}`); !bad || !strings.Contains(got, "tell the operator the reference ") || strings.Contains(got, "/var") {
		t.Errorf("an internal error: %s", got)
	}
	cancelled(t, s, mem)
}

// untilCancelled makes runs last until their context ends.
func untilCancelled(mem *apitest.Memory) (begun, ended chan struct{}) {
	begun, ended = make(chan struct{}), make(chan struct{})
	mem.OnRun = func(ctx context.Context, _ chat.RunSpec) (chat.RunResult, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return chat.RunResult{}, ctx.Err()
	}
	return begun, ended
}

// cancelled calls exec and cancels it: the run ends, and there is no answer.
func cancelled(t *testing.T, s *sdk.ClientSession, mem *apitest.Memory) {
	t.Helper()
	begun, ended := untilCancelled(mem)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-begun
		cancel()
	}()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "exec", Arguments: json.RawMessage(`{"command": "x"}`)}); err == nil {
		t.Error("a call that was cancelled has an answer")
	}
	<-ended
}

// The caller is that of the request, whatever context the SDK passes.
func TestWithin(t *testing.T) {
	want := chat.Caller{UID: 7, Name: "one", Role: chat.RoleBridge}
	request, end := context.WithCancel(chat.WithCaller(t.Context(), want))
	ctx, cancel := within(context.Background(), request)
	defer cancel()
	got := chat.CallerFrom(ctx)
	expect.True(t, got == want, "%+v", got)
	end()
	<-ctx.Done()
}

// A bridge's tools reach only its own chats, even if the handler is called without the route.
func TestHTTPOwnChats(t *testing.T) {
	mem := apitest.New()
	as := func(name string) context.Context {
		return chat.WithCaller(t.Context(), chat.Caller{UID: 7, Name: name, Role: chat.RoleBridge})
	}
	made := must.First(mem.Create(as("one"), chat.Spec{ExternalID: "a"}))(t)
	chats := must.Get(runs.Open(t.Context(), mem, runs.Options{}))(t)
	defer chats.Close()
	for name, want := range map[string]string{"one": `exit code 0`, "two": `not_found: `} {
		r := httptest.NewRequestWithContext(as(name), "POST", "/", strings.NewReader(
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"echo"}}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		NewWeb("").Handler(chats, made.ID, nil).ServeHTTP(w, r)
		expect.True(t, w.Code == http.StatusOK && strings.Contains(w.Body.String(), want),
			"%s: %d %s", name, w.Code, w.Body)
	}
}

func useTools(t *testing.T, mem *apitest.Memory, s *sdk.ClientSession) {
	mem.Rule(func(op filewire.Op, name string) *filewire.Denial {
		if !strings.HasSuffix(name, ".env") {
			return nil
		}
		return &filewire.Denial{Op: op, Path: name, Rule: "deny .env", Place: "/etc/chatd/rules.yaml:3", Layer: "global rules"}
	})
	for _, x := range []struct {
		tool, args, want string
		bad              bool
	}{
		{"write_file", `{"path": "d/a", "content": "one"}`, "File written: d/a", false},
		{"append_file", `{"path": "d/a", "content": " two\n"}`, "Appended to d/a", false},
		{"read_file", `{"path": "d/a"}`, "one two\n", false},
		{"read_file", `{"path": "d/a", "offset": 4, "length": 3}`, "two\nthere is more, 8 bytes in all: go on with offset 7", false},
		{"edit_file", `{"path": "d/a", "old_text": "two", "new_text": "2"}`, "File edited: d/a\n-two\n+2\n", false},
		{"list_dir", `{}`, "DIR:  d\n", false},
		{"list_dir", `{"path": "d"}`, "FILE: a\n", false},
		{"exec", `{"command": "echo hello"}`, "hello\n\nexit code 0; it took 0s", false},
		{"exec", `{"argv": ["cat"], "stdin": "a", "timeout": "1m30s"}`, "a\nexit code 0", false},
		{"exec", `{"command": "false"}`, "stderr:\nno\n\nexit code 1", false},
		{"exec", `{"command": "killed"}`, "ended by SIGKILL; out of memory: the kernel ended 1 process of the run", false},
		{"exec", `{"command": "slow", "timeout": "2s"}`, "ended by its timeout, 2s: give a longer timeout", false},
		{"exec", `{"command": "env", "env": {"A": "b"}}`, "map[A:b]", false},
		{"exec", `{"command": "max"}`, "65536\n", false}, // no more is shown
		{"exec", `{"command": "max", "output_max": 0}`, "65536\n", false},
		{"exec", `{"command": "max", "output_max": 1024}`, "1024\n", false},
		{"terminal_send", `{"text": "ls", "enter": true}`, "typed", false},
		{"terminal_send", `{"keys": ["C-c"]}`, "typed", false},
		{"terminal_read", `{}`, "ls\n", false},
		{"terminal_send", `{"text": "false", "enter": true, "wait": {"until": "prompt"}}`, "false\n\nthe cursor is 14\nthe shell is at its prompt; exit code 1", false},
		{"terminal_send", `{"text": "sleep", "wait": {"until": "quiet", "quiet": "2s", "max": "3s"}}`, "the wait was over before; go on with terminal_read", false},
		{"terminal_read", `{"since": 8}`, "false\n     sleep\nthe cursor is 19", false},
		{"explain", `{"path": "x", "op": "read"}`, `"verdict":"allow"`, false},
		{"explain", `{"path": ".env", "op": "write"}`, `"verdict":"deny"`, false},
		{"explain", `{"host": "a.example", "port": 443}`, `"why":"it is not listed"`, false},
		// Refusals, with their reasons.
		{"write_file", `{"path": ".env", "content": "x"}`, `denied: access denied: write of "`, true},
		{"read_file", `{"path": "nothing"}`, "not_found: ", true},
		{"edit_file", `{"path": "d/a", "old_text": "three", "new_text": ""}`, "invalid: ", true},
		{"exec", `{}`, "invalid: cannot run: want exactly one of command and argv", true},
		{"exec", `{"command": "x", "argv": ["x"]}`, "exactly one of command and argv", true},
		{"exec", `{"command": "x", "timeout": "2h"}`, "want at most 1h0m0s, which is timeout_max of profile default", true},
		{"exec", `{"command": "x", "timeout": "soon"}`, "timeout", true},
		{"exec", `{"command": "x", "background": true}`, "background", true},
		{"exec", `{"command": "x", "output_max": 65537}`, "65536", true},
		{"exec", `{"command": "x", "output_max": 1023}`, "output_max 1023: want 1024 to 4194304 bytes", true},
		{"exec", `{"command": "x", "output_max": -1}`, "output_max", true},
		{"exec", `{"COMMAND": "x"}`, "COMMAND", true},
		{"write_file", `{"path": "a"}`, "content", true},
		{"write_file", `{"path": "a", "content": null}`, "content", true},
		{"write_file", `{"path": "a", "content": "x", "stream": true}`, "stream", true},
		{"read_file", `{"path": "a", "offset": -1}`, "offset", true},
		{"read_file", `{"path": "a", "offset": 1, "line": 1}`, "not both", true},
		{"read_file", `{}`, "path", true},
		{"list_dir", `{"limit": 10001}`, "limit", true},
		{"terminal_send", `{"text": "x", "keys": ["Up"]}`, "want text or keys, not both", true},
		{"terminal_send", `{}`, "no text, no enter, no keys", true},
		{"terminal_send", `{"text": "x", "wait": {"until": "always"}}`, "until", true},
		{"terminal_send", `{"text": "x", "wait": {"until": "prompt", "max": "11m"}}`, "max 11m0s: want", true},
		{"terminal_read", `{"rows": 3}`, "rows", true},
		{"terminal_read", `{"since": -1}`, "since", true},
		{"terminal_read", `{"since": 1000}`, "cursor 1000: it ends at 19", true},
		{"explain", `{"path": "a", "op": "exec"}`, "op", true},
	} {
		got, bad := call(t, s, x.tool, x.args)
		expect.True(t, strings.Contains(got, x.want) && bad == x.bad,
			"%s %s\n got %q, %v\nwant %q, %v", x.tool, x.args, got, bad, x.want, x.bad)
		expect.True(t, !strings.Contains(got, "/etc/chatd") && !strings.Contains(got, "rules.yaml"),
			"%s %s tells where the rules are: %q", x.tool, x.args, got)
	}
	if got, bad := call(t, s, "explain", `{"path": ".env", "op": "write"}`); bad || strings.Contains(got, "deny .env") {
		t.Errorf("explain tells the rule: %s", got)
	}
	_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "reap"})
	expect.True(t, err != nil, "a tool that is not there answered")
}

// Each tool that a profile can switch off is in the list, and describes its arguments
// as the API does.
func TestSchemas(t *testing.T) {
	c, _, id := daemon(t)
	list := must.Get(agent(t, c, id).ListTools(t.Context(), nil))(t)
	got := map[string]string{}
	for _, tool := range list.Tools {
		text := must.Get(json.Marshal(tool.InputSchema))(t)
		got[tool.Name] = string(text)
		if tool.Description == "" || !strings.Contains(got[tool.Name], `"additionalProperties":false`) {
			t.Errorf("%s: %q %s", tool.Name, tool.Description, text)
		}
	}
	want := []string{"terminal_send", "terminal_read", "explain", "run_start", "run_poll", "run_stdin", "run_end"}
	for _, name := range chat.Tools() {
		if name != chat.ToolTerminal {
			want = append(want, name)
		}
	}
	if len(got) != len(want) || slices.ContainsFunc(want, func(n string) bool { return got[n] == "" }) {
		t.Errorf("tools %v, want %v", got, want)
	}
	for name, pieces := range map[string][]string{
		"exec":          {`"A shell command, run by sh -c. Exactly one of command and argv."`, `"maxLength":4096`, `"maximum":65536`, `head and tail: 1024 to 65536; 0 means 65536.`},
		"read_file":     {`"minimum":0`, `"required":["path"]`},
		"write_file":    {`"required":["path","content"]`},
		"list_dir":      {`"maximum":10000`},
		"terminal_send": {`"maxItems":64`, `"enum":["prompt","output","quiet","screen"`, `nothing is printed`},
		"explain":       {`"enum":["read","write","edit","bash"]`, `"maximum":65535`},
	} {
		for _, p := range pieces {
			if !strings.Contains(got[name], p) {
				t.Errorf("%s lacks %s: %s", name, p, got[name])
			}
		}
	}
	for name, text := range got {
		expect.True(t, !strings.Contains(text, "null") && !strings.Contains(text, `"stream"`),
			"%s: %s", name, text)
	}
}

// An agent gets the reasons that it may know; the host's paths are for the operator only.
func TestRefusals(t *testing.T) {
	c, mem, id := daemon(t)
	s := agent(t, c, id)
	for _, x := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("Command blocked by safety guard (dangerous pattern detected): rm-rf: name the directory: %w", chat.ErrDenied), "denied: Command blocked by safety guard (dangerous pattern detected): rm-rf: name the directory"},
		{fmt.Errorf("cannot run: chat is reaping: %w", chat.ErrWrongPhase), "wrong_phase: cannot run: chat is reaping"},
		{fmt.Errorf("cannot make /sys/fs/cgroup/x: %w", chat.ErrBusy), "busy: chatd cannot do it now; try again"},
		{fmt.Errorf("cannot open /etc/x: %w", chat.ErrUnsupported), "unsupported: "},
		{errors.New("cannot open /var/lib/x"), "internal: something is wrong with chatd, not with the call; tell the operator the reference "},
	} {
		mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) { return chat.RunResult{}, x.err }
		got, bad := call(t, s, "exec", `{"command": "x"}`)
		expect.True(t, bad && strings.HasPrefix(got, x.want) && !strings.Contains(got, "/"),
			"%v is told as %q, %v", x.err, got, bad)
	}
	d := &filewire.Denial{Op: filewire.Read, Path: "/home/x", Rule: "deny x", Place: "/etc/r.yaml:1"}
	if got := reason(fmt.Errorf("cannot: %w", d)); got != `denied: cannot: access denied: read of "/home/x" by rule "deny x"` {
		t.Error(got)
	}
	must.Do(t, c.Reap(t.Context(), id))
	if got, bad := call(t, s, "terminal_read", `{}`); !bad || !strings.HasPrefix(got, "not_found: ") {
		t.Errorf("a chat that was reaped: %q", got)
	}
}

func TestBounds(t *testing.T) {
	c, mem, id := daemon(t)
	s := agent(t, c, id)
	long := "head" + strings.Repeat("x", 3*MaxText) + "tail"
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{Stdout: long, Stderr: long, StdoutBytes: int64(len(long)), StderrBytes: 7}, nil
	}
	got, _ := call(t, s, "exec", `{"command": "x"}`)
	if len(got) > 2*MaxText+1000 || !strings.HasPrefix(got, "head") || strings.Count(got, "tail") != 2 || !strings.Contains(got, fmt.Sprintf("it printed %d bytes, and %[1]d to stderr", len(long))) {
		t.Errorf("%d bytes: …%s", len(got), got[len(got)-200:])
	}
	// A file comes in pages, which end where a character does.
	text := "x" + strings.Repeat("é🦀", MaxText/4)
	if _, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "long", Stream: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	whole, at := "", int64(0)
	for range 10 {
		got, bad := call(t, s, "read_file", fmt.Sprintf(`{"path": "long", "offset": %d}`, at))
		page, more, found := strings.Cut(got, "\nthere is more, ")
		if whole += page; bad || len(page) > MaxText {
			t.Fatalf("a page of %d bytes, %v", len(page), bad)
		}
		if !found {
			break
		}
		must.Do(t, expect.Err(fmt.Sscanf(more[strings.Index(more, "offset"):], "offset %d", &at)))
	}
	expect.True(t, whole == text,
		"%d bytes in pages, want %d; the last begins at %d", len(whole), len(text), at)
	if _, err := c.WriteFile(t.Context(), id, filewire.WriteFile{Path: "raw", Stream: true}, strings.NewReader("\xff\x00")); err != nil {
		t.Fatal(err)
	}
	if got, _ := call(t, s, "read_file", `{"path": "raw"}`); got != "/wA=\nthis is base64: the content is no UTF-8" {
		t.Errorf("%q", got)
	}
}

// An agent that cancels a call, or goes away, ends the command.
func TestCancel(t *testing.T) {
	c, mem, id := daemon(t)
	cancelled(t, agent(t, c, id), mem)
}

// The end of the input ends the current calls, and Serve.
func TestAgentGone(t *testing.T) {
	c, mem, id := daemon(t)
	begun, ended := untilCancelled(mem)
	in, agent := io.Pipe()
	go func() {
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"exec","arguments":{"command":"x"}}}`,
		} {
			expect.NoError(t, expect.Err(io.WriteString(agent, line+"\n")))
		}
		<-begun
		expect.NoError(t, agent.Close())
	}()
	expect.NoError(t, Serve(t.Context(), c, id, "", in, io.Discard))
	<-ended
}

type noRead struct{ t *testing.T }

func (r noRead) Read([]byte) (int, error) {
	r.t.Error("the input was read")
	return 0, io.EOF
}

func TestServeWithoutChat(t *testing.T) {
	c, _, id := daemon(t)
	var out strings.Builder
	if err := Serve(t.Context(), c, "0123456789abcdef", "", noRead{t}, &out); !errors.Is(err, chat.ErrNotFound) || out.Len() > 0 {
		t.Errorf("%v %q", err, out.String())
	}
	none := client.NewClient(client.ClientOptions{Socket: filepath.Join(t.TempDir(), "none")})
	if err := Serve(t.Context(), none, id, "", noRead{t}, &out); !errors.Is(err, chat.ErrBusy) || out.Len() > 0 {
		t.Errorf("%v %q", err, out.String())
	}
}
