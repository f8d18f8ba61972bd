package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// tools are the tools on one chat.
type tools struct {
	chats api.Chats
	id    chat.ID
	// request is that of HTTP, with the caller; nil over stdio.
	request context.Context
	// problem writes an internal error down where there is no client that has been told
	// of it already; nil over stdio.
	problem api.Problems
}

// tool is one row: name and description, and whether it changes nothing.
type tool struct {
	name, about   string
	reads         bool
	without, with []string
	// narrow is for what the tool takes less of than the API does; nil for nothing.
	narrow func(*jsonschema.Schema)
}

// addTools is the table of the tools.
func addTools(s *sdk.Server, t tools) error {
	unused, content := []string{"stream", "hash"}, []string{"content"}
	for _, err := range []error{
		add(s, t, tool{name: "exec", about: "Run one command in the chat, beside its terminal, and wait for its end. Exactly one of command and argv. The answer has what it printed and how it ended.",
			without: []string{"background", "open_stdin", "tty"}, narrow: narrowExec}, t.exec),
		add(s, t, tool{name: "read_file", about: "Read a file, or a page of it: by offset and length in bytes, or by line and lines. The answer says where to go on.", reads: true, without: unused}, t.readFile),
		add(s, t, tool{name: "write_file", about: "Write a file, in one step: afterwards it has this content and no other.", without: unused, with: content}, t.writeFile),
		add(s, t, tool{name: "edit_file", about: "Replace a text in a file; it must be there exactly once. The answer has a diff."}, t.editFile),
		add(s, t, tool{name: "append_file", about: "Add to the end of a file.", without: unused, with: content}, t.appendFile),
		add(s, t, tool{name: "list_dir", about: "List a directory, the home if path is empty.", reads: true}, t.listDir),
		add(s, t, tool{name: "terminal_send", about: "Type into the chat's terminal: text, with enter if wanted, or keys by name as in ctrl-c, up, enter. It wakes a chat that is asleep. With only_if nothing is typed where the prompt, or the program in front, is another. With wait the answer has what was printed until the shell's next prompt, or until nothing was printed for a while, and the exit code; else see terminal_read."}, t.send),
		add(s, t, tool{name: "terminal_read", about: "Show what the chat's terminal shows now, and where its cursor is; with since, what it printed from that cursor on, which an answer of terminal_send or terminal_read has named.", reads: true}, t.screen),
		add(s, t, tool{name: "explain", about: "Say whether something would be allowed, without doing it: op on path, or a command.", reads: true}, t.explain),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// add makes do a tool. Its arguments are T, checked against their schema; an
// argument that T does not have is an error.
func add[T any](s *sdk.Server, t tools, row tool, do func(context.Context, T) ([]string, error)) error {
	schema, err := schemaOf[T](row.without, row.with)
	if err != nil {
		return fmt.Errorf("cannot offer %s: %w", row.name, err)
	}
	if row.narrow != nil {
		row.narrow(schema)
	}
	about := &sdk.Tool{Name: row.name, Description: row.about, InputSchema: schema, Annotations: &sdk.ToolAnnotations{ReadOnlyHint: row.reads}}
	sdk.AddTool(s, about, func(ctx context.Context, _ *sdk.CallToolRequest, in T) (*sdk.CallToolResult, any, error) {
		ctx, cancel := within(ctx, t.request)
		defer cancel()
		parts, err := do(ctx, in)
		if err != nil && t.problem != nil {
			err = t.problem(ctx, err)
		}
		if err != nil {
			return refusal(err), nil, nil
		}
		return said(parts...), nil, nil
	})
	return nil
}

// narrowExec: what is kept of a run is what its answer has.
func narrowExec(s *jsonschema.Schema) {
	p, most := s.Properties["output_max"], float64(MaxText)
	p.Maximum = &most
	p.Description = fmt.Sprintf("Bytes shown of each stream, head and tail: %d to %d; 0 means %d.", chat.LeastOutputMax, MaxText, MaxText)
}

func (t tools) exec(ctx context.Context, a chat.RunSpec) ([]string, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	a.OutputMax = cmp.Or(a.OutputMax, MaxText)
	r, err := t.chats.Run(ctx, t.id, a)
	if err != nil {
		return nil, err
	}
	return runText(r), nil
}

// readFile asks for a page that an agent can hold where it did not say how much.
func (t tools) readFile(ctx context.Context, a files.ReadFile) ([]string, error) {
	own := a.Length == 0 && a.Line == 0 && a.Lines == 0
	if own {
		a.Length = MaxText
	}
	var b bytes.Buffer
	got, err := t.chats.ReadFile(ctx, t.id, a, func(files.Answer) io.Writer { return &b })
	if err != nil {
		return nil, err
	}
	if own && got.Truncated {
		cutRune(&got, &b)
	}
	return pageText(got, b.Bytes()), nil
}

func (t tools) writeFile(ctx context.Context, a files.WriteFile) ([]string, error) {
	got, err := t.chats.WriteFile(ctx, t.id, a, nil)
	return doneText(got), err
}

func (t tools) appendFile(ctx context.Context, a files.WriteFile) ([]string, error) {
	got, err := t.chats.AppendFile(ctx, t.id, a, nil)
	return doneText(got), err
}

func (t tools) editFile(ctx context.Context, a files.EditFile) ([]string, error) {
	got, err := t.chats.EditFile(ctx, t.id, a)
	return doneText(got), err
}

func (t tools) listDir(ctx context.Context, a files.ListDir) ([]string, error) {
	var b bytes.Buffer
	got, err := t.chats.ListDir(ctx, t.id, a, func(files.Answer) io.Writer { return &b })
	if err != nil {
		return nil, err
	}
	return pageText(got, b.Bytes()), nil
}

func (t tools) send(ctx context.Context, a chat.Input) ([]string, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if a.Wait == nil {
		return []string{"typed; whether the program took it is not known, terminal_read shows"}, t.chats.Input(ctx, t.id, a)
	}
	got, err := t.chats.InputWait(ctx, t.id, a)
	if err != nil {
		return nil, err
	}
	return typedText(got), nil
}

// terminalRead is what terminal_read takes.
type terminalRead struct {
	Since *int64 `json:"since,omitempty" minimum:"0" doc:"A cursor: answer with what was printed from there on."`
}

func (t tools) screen(ctx context.Context, a terminalRead) ([]string, error) {
	if a.Since != nil {
		l, err := t.chats.Log(ctx, t.id, *a.Since)
		if err != nil {
			return nil, err
		}
		return logText(l), nil
	}
	s, err := t.chats.Screen(ctx, t.id)
	if err != nil {
		return nil, err
	}
	return []string{s.Text, fmt.Sprintf("cursor: row %d, column %d of %d by %d, counted from 0", s.CursorRow, s.CursorCol, s.Rows, s.Cols)}, nil
}

// explain leaves out the rules of the operator and their places: a denial does not
// tell a chat either, and a policy may want that (messages: vague).
func (t tools) explain(ctx context.Context, q chat.Question) ([]string, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	e, err := t.chats.Explain(ctx, t.id, q)
	if err != nil {
		return nil, err
	}
	e.Rule, e.Place, e.Layer = "", "", ""
	if e.Guard != nil {
		g := *e.Guard
		g.Place = ""
		e.Guard = &g
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("cannot write the answer: %w", err)
	}
	return []string{string(text)}, nil
}
