package filewire

import (
	"context"
	"encoding/json"
	"os"

	"github.com/chatd/chatd/chat"
)

// Use is a request for one of the five tools. It has no content: that of write_file and append_file
// is a stream.
type Use struct {
	Tool Tool            `json:"tool"`
	Args json.RawMessage `json:"args"`
	// Short means that the caller has already sent all of the content.
	Short bool `json:"short,omitempty"`
}

// NewUse makes a Use of a tool's arguments, without content in them.
func NewUse(tool Tool, args Args) (Use, error) {
	if err := args.Validate(); err != nil {
		return Use{}, err
	}
	a, writes := args.(WriteFile)
	short := writes && a.Content != nil
	if short {
		a.Content, a.Stream = nil, true
		args = a
	}
	req, err := NewRequest(tool, args)
	return Use{Tool: tool, Args: req.Parameters, Short: short}, err
}

// Args are the arguments of a tool.
type Args interface {
	Validate() error
	// Named returns the path in the request, and the operation on it. stream is whether the content
	// may have any size.
	Named() (path string, op Op, stream bool)
}

// Named is [Args].
func (a ReadFile) Named() (path string, op Op, stream bool) { return a.Path, Read, a.Stream }

// Named is [Args].
func (a WriteFile) Named() (path string, op Op, stream bool) { return a.Path, Write, a.Stream }

// Named is [Args].
func (a EditFile) Named() (path string, op Op, stream bool) { return a.Path, Edit, false }

// Named is [Args].
func (a ListDir) Named() (path string, op Op, stream bool) { return a.Path, Read, false }

// Read are the arguments, which are valid.
func (u Use) Read() (Args, error) {
	read := map[Tool]func(Use) (Args, error){
		ReadFileTool: argsOf[ReadFile], WriteFileTool: argsOf[WriteFile], EditFileTool: argsOf[EditFile],
		AppendFileTool: argsOf[WriteFile], ListDirTool: argsOf[ListDir],
	}[u.Tool]
	if read == nil {
		return nil, Invalid("cannot use tool %s: no such tool", chat.Quote(string(u.Tool)))
	}
	return read(u)
}

func argsOf[A Args](u Use) (Args, error) {
	var a A
	if err := Decode(u.Args, &a); err != nil {
		return nil, Invalid("cannot use the arguments of %s: %w", u.Tool, err)
	}
	return a, a.Validate()
}

// LiveTool is a tool that is running and has its request, ready to be spoken with.
type LiveTool struct {
	Tool Tool
	// In and Out are the other ends of its standard input and output.
	In, Out *os.File
	// Max bounds a file, in bytes.
	Max int64
}

// Talk speaks with a tool, as by [Speak], and closes its two files. It returns when ctx ends.
type Talk = func(ctx context.Context, t LiveTool) (Answer, error)
