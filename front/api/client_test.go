package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestErrorsCrossTheWire: every sentinel of package chat has a row, and arrives as itself.
func TestErrorsCrossTheWire(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	for _, k := range client.Kinds {
		mem.OnCreate = func(context.Context, chat.Spec) error { return fmt.Errorf("cannot do x: %w", k.Sentinel) }
		_, _, err := c.Create(t.Context(), chat.Spec{ExternalID: "a"})
		var p *client.Problem
		if !errors.Is(err, k.Sentinel) || !errors.As(err, &p) || p.Status != k.Status || client.Kind(err) != k.Word || chat.ExitCode(err) != chat.ExitCode(k.Sentinel) {
			t.Errorf("%s came back as %#v", k.Word, err)
		}
		for _, other := range client.Kinds {
			expect.True(t, other.Word == k.Word || !errors.Is(err, other.Sentinel),
				"%s is also %s", k.Word, other.Word)
		}
	}
	expect.True(t, len(client.Kinds) == 8,
		"%d client.Kinds: compare with package chat and this test", len(client.Kinds))
	expect.True(t, chat.ExitCode(nil) == 0 && chat.ExitCode(errors.New("x")) == 1,
		"exit codes of nil and of an internal error")
}

func TestClientOfEveryRoute(t *testing.T) {
	socket, _ := start(t, ServerOptions{NameOf: func(uint32) (string, error) { return "root", nil }})
	c, ctx := clientAt(t, socket), t.Context()
	asleep := false
	made, created, err := c.Create(ctx, chat.Spec{ExternalID: "a", Labels: map[string]string{"k": "v"}, Awake: &asleep, Owner: "bot"})
	must.True(t, err == nil && created && !made.Awake && made.Owner == "bot",
		"create: %+v %v %v", made, created, err)
	if _, created, err := c.Create(ctx, chat.Spec{ExternalID: "a", Owner: "bot"}); err != nil || created {
		t.Errorf("create again: %v %v", created, err)
	}
	if got, err := c.Wake(ctx, made.ID); err != nil || !got.Awake || got.Usage == nil {
		t.Errorf("wake: %+v %v", got, err)
	}
	expect.NoError(t, c.Input(ctx, made.ID, chat.Input{Text: "ls\x1b", Enter: true}))
	if s, err := c.Screen(ctx, made.ID); err != nil || s.Text != "ls\x1b\n" {
		t.Errorf("screen: %+v %v", s, err)
	}
	if r, err := c.Run(ctx, made.ID, chat.RunSpec{Argv: []string{"cat"}, Stdin: "<&>\u2028"}); err != nil || r.Stdout != "<&>\u2028" {
		t.Errorf("run: %+v %v", r, err)
	}
	if p, err := c.Processes(ctx, made.ID); err != nil || len(p.Processes) != 1 || p.Processes[0].Name != "bash" {
		t.Errorf("processes: %+v %v", p, err)
	}
	if l, err := c.EgressLog(ctx, made.ID); err != nil || len(l.Entries) != 0 || l.Entries == nil {
		t.Errorf("egress: %+v %v", l, err)
	}
	if got, err := c.Freeze(ctx, made.ID); err != nil || got.Frozen != chat.FrozenUntilThawed {
		t.Errorf("freeze: %+v %v", got, err)
	}
	if got, err := c.Thaw(ctx, made.ID); err != nil || got.Frozen != "" {
		t.Errorf("thaw: %+v %v", got, err)
	}
	if got, err := c.Sleep(ctx, made.ID); err != nil || got.Awake {
		t.Errorf("sleep: %+v %v", got, err)
	}
	expect.Is(t, expect.Err(c.Screen(ctx, made.ID)), chat.ErrWrongPhase, "screen asleep")
	if got, err := c.Get(ctx, made.ID); err != nil || got.ID != made.ID {
		t.Errorf("get: %+v %v", got, err)
	}
	if h, err := c.Host(ctx); err != nil || h.Chats != 1 {
		t.Errorf("host: %+v %v", h, err)
	}
	if st, err := c.Status(ctx); err != nil || st.Chats != 1 || st.Since.IsZero() {
		t.Errorf("status: %+v %v", st, err)
	}
	expect.NoError(t, c.Reap(ctx, made.ID))
	expect.Is(t, expect.Err(c.Get(ctx, made.ID)), chat.ErrNotFound, "get after reap")
}

func TestListPagesAndFilters(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	c := clientAt(t, socket)
	for i := range 5 {
		awake := i%2 == 0
		if _, _, err := c.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint(i), Awake: &awake, Labels: map[string]string{"n": fmt.Sprint(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		f    chat.Filter
		want int
	}{
		{chat.Filter{}, 5}, {chat.Filter{Label: "n=3"}, 1}, {chat.Filter{Label: "n"}, 5}, {chat.Filter{Label: "m"}, 0},
		{chat.Filter{Awake: new(bool)}, 2}, {chat.Filter{ExternalID: "4"}, 1}, {chat.Filter{Owner: "nobody"}, 0}, {chat.Filter{Limit: 1}, 5},
	} {
		n := 0
		for {
			page := must.Get(c.List(t.Context(), tt.f))(t)
			n += len(page.Chats)
			if tt.f.Cursor = page.Next; page.Next == "" {
				break
			}
		}
		expect.True(t, n == tt.want, "%+v: %d chats, want %d", tt.f, n, tt.want)
	}
}

func TestClientWithoutADaemon(t *testing.T) {
	c := clientAt(t, filepath.Join(t.TempDir(), "none"))
	_, err := c.Host(t.Context())
	expect.True(t, errors.Is(err, chat.ErrBusy) && errors.Is(err, fs.ErrNotExist), "got %v", err)
}

func TestClientSendsNoOddID(t *testing.T) {
	c := clientAt(t, filepath.Join(t.TempDir(), "none"))
	for _, id := range []chat.ID{"", "../host", "0123456789ABCDEF"} {
		expect.Is(t, c.Reap(t.Context(), id), chat.ErrInvalid, "%q", id)
		expect.Is(t, expect.Err(c.RunTo(t.Context(), id, chat.RunSpec{Command: "x"}, nil)), chat.ErrInvalid,
			"a streamed run of %q", id)
	}
}

// TestOpenAPI: the description names every row of the table, and gives durations as text.
func TestOpenAPI(t *testing.T) {
	socket, _ := start(t, ServerOptions{Version: "9"})
	g := raw(t, socket, get("/openapi.json"))
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
			Parameters  []struct {
				Name     string
				Required bool
			}
		}
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Type any }
			}
		}
	}
	err := json.Unmarshal([]byte(g.body), &doc)
	must.True(t, err == nil && doc.OpenAPI == "3.1.0", "%v %q", err, doc.OpenAPI)
	for _, r := range verbs.Table {
		method := map[string]string{"GET": "get", "POST": "post", "DELETE": "delete", "PUT": "put", "PATCH": "patch"}[r.Method]
		if op := doc.Paths[r.Path][method]; op.OperationID != r.Name || op.Responses[fmt.Sprint(r.Status)] == nil || op.Responses["default"] == nil {
			t.Errorf("%s: got %+v", r.Pattern(), op)
		}
	}
	for _, at := range []string{"get", "put"} {
		if op := doc.Paths["/v1/chats/{id}/files/content"][at]; len(op.Parameters) < 4 || op.Parameters[1].Name != "path" || !op.Parameters[1].Required {
			t.Errorf("%s of content: %+v", at, op)
		}
	}
	for _, name := range []string{"FileAnswer", "WriteFile", "ReadFile", "EditFile", "ListDir", "Question", "Explained", "Share", "Shared"} {
		expect.True(t, len(doc.Components.Schemas[name].Properties) != 0, "no schema %s", name)
	}
	got := doc.Components.Schemas["RunSpec"].Properties["timeout"].Type
	expect.True(t, got == "string", "timeout is a %v", got)
	if !slices.Contains([]any{"string"}, doc.Components.Schemas["Problem"].Properties["kind"].Type) {
		t.Errorf("no Problem with a kind: %v", doc.Components.Schemas["Problem"])
	}
}
