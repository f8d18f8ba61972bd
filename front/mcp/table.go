package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
)

// tool is one row: its name, its description, and hints for agents that ask their user before a
// call.
type tool struct {
	name, title, about string
	hints              hints
	// without lists the arguments that it does not accept, with those that it requires.
	without, with []string
	// narrow tightens the API's bounds for the tool; nil keeps them.
	narrow func(*jsonschema.Schema)
}

// hints classify a tool. One that reads changes nothing; one that loses may destroy data; repeating
// one that has again set has no further effect; and one that has out set may reach the network, as
// far as the chat can.
type hints struct{ reads, loses, again, out bool }

func (h hints) annotations(title string) *sdk.ToolAnnotations {
	return &sdk.ToolAnnotations{Title: title, ReadOnlyHint: h.reads, DestructiveHint: &h.loses,
		IdempotentHint: h.again || h.reads, OpenWorldHint: &h.out}
}

// addTools is the table of the tools.
func addTools(s *sdk.Server, t tools) error {
	unused, content := []string{"stream", "hash"}, []string{"content"}
	command := hints{loses: true, out: true}
	return errors.Join(
		add(s, t, tool{name: "exec", title: "Run a command",
			about: "Run one command in the chat, beside its terminal, and wait for its end. Exactly one of command and argv. The answer has what it printed and how it ended. Processes that it leaves in the background end with it: for a server, and for what takes longer than you can wait, see run_start.",
			hints: command, without: []string{"background", "open_stdin", "tty"},
			narrow: narrowExec}, t.exec),
		add(s, t, tool{name: "run_start", title: "Start a background run",
			about: "Start one command that goes on in the background, also when you are gone, and answer with its id immediately. Exactly one of command and argv.",
			hints: command, without: []string{"background", "tty"}}, t.startRun),
		add(s, t, tool{name: "run_poll", title: "Look at a background run",
			about: "Say what a background run printed from a cursor on, and how it ended if it has; with wait, when there is something to say.", hints: hints{reads: true}}, t.pollRun),
		add(s, t, tool{name: "run_stdin", title: "Write to a background run",
			about: "Write to the standard input of a background run that was started with open_stdin.",
			hints: command}, t.stdinRun),
		add(s, t, tool{name: "run_end", title: "End a background run",
			about: "End a background run, with all of its processes: SIGTERM, its grace, SIGKILL.",
			hints: hints{loses: true}}, t.endRun),
		add(s, t, tool{name: "read_file", title: "Read a file",
			about: "Read a file, or a page of it: by offset and length in bytes, or by line and lines. The answer says where to go on.", hints: hints{reads: true}, without: unused}, t.readFile),
		add(s, t, tool{name: "write_file", title: "Write a file",
			about: "Write a file, in one step: afterwards it has this content and no other.",
			hints: hints{loses: true, again: true}, without: unused, with: content}, t.writeFile),
		add(s, t, tool{name: "edit_file", title: "Edit a file",
			about: "Replace a text in a file; it must be there exactly once. The answer has a diff.",
			hints: hints{loses: true}}, t.editFile),
		add(s, t, tool{name: "append_file", title: "Append to a file", about: "Add to the end of a file.",
			without: unused, with: content}, t.appendFile),
		add(s, t, tool{name: "list_dir", title: "List a directory",
			about: "List a directory, the home if path is empty.", hints: hints{reads: true}}, t.listDir),
		add(s, t, tool{name: "terminal_send", title: "Type into the terminal",
			about: "Type into the chat's terminal: text, with enter if wanted, or keys by name as in ctrl-c, up, enter. It wakes a chat that is asleep. With only_if nothing is typed where the prompt, or the program in front, is another. With wait the answer has what was printed until the shell's next prompt, something printed, quiet after it, or a pattern on the screen, and the exit code; else see terminal_read.", hints: command}, t.send),
		add(s, t, tool{name: "terminal_read", title: "Read the terminal",
			about: "Show what the chat's terminal shows now, and where its cursor is; with since, what it printed from that cursor on, which an answer of terminal_send or terminal_read has named.", hints: hints{reads: true}}, t.screen),
		add(s, t, tool{name: "explain", title: "Ask what is allowed",
			about: "Say whether something would be allowed, without doing it: op on path, a command, or a connection to port of host.", hints: hints{reads: true}}, t.explain),
	)
}

// add registers do as a tool. Its arguments are T, checked against their schema; an unknown
// argument is an error. Its answer is texts, and an O that its output schema describes.
func add[T, O any](s *sdk.Server, t tools, row tool, do func(context.Context, T) (toolAnswer[O], error)) error {
	in, err := schemaOf[T](describeArgument)
	out, errOut := schemaOf[O](describeResult)
	if err = errors.Join(err, errOut); err != nil {
		return fmt.Errorf("cannot offer %s: cannot describe it: %w", row.name, err)
	}
	for _, name := range row.without {
		delete(in.Properties, name)
	}
	in.PropertyOrder = slices.DeleteFunc(in.PropertyOrder, func(n string) bool {
		return slices.Contains(row.without, n)
	})
	in.Required = append(in.Required, row.with...)
	if row.narrow != nil {
		row.narrow(in)
	}
	about := &sdk.Tool{Name: row.name, Title: row.title, Description: row.about, InputSchema: in,
		OutputSchema: out, Annotations: row.hints.annotations(row.title)}
	sdk.AddTool(s, about,
		func(ctx context.Context, req *sdk.CallToolRequest, in T) (*sdk.CallToolResult, O, error) {
			ctx, cancel := within(ctx, t.request)
			defer cancel()
			defer reportProgress(ctx, req)()
			got, err := do(ctx, in)
			if err != nil && t.problem != nil && ctx.Err() == nil {
				err = t.problem(ctx, err)
			}
			if err != nil {
				return nil, got.value, errors.New(valid(reason(err))) // isError, without a structured value
			}
			return said(got.texts...), got.value, nil
		})
	return nil
}

// narrowExec bounds the kept output of a run to what its answer shows.
func narrowExec(s *jsonschema.Schema) {
	p, max := s.Properties["output_max"], float64(MaxText)
	p.Maximum = &max
	p.Description = fmt.Sprintf("Bytes shown of each stream, head and tail: %d to %d; 0 means %d.",
		chat.MinOutputMax, MaxText, MaxText)
}
