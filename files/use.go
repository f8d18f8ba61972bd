package files

import (
	"context"
	"encoding/json"
	"os"

	"github.com/chatd/chatd/chat"
)

// Use is a call of one of the five tools as it is asked for. Content is not in it: what
// write_file and append_file write comes as a stream.
type Use struct {
	Tool Tool            `json:"tool"`
	Args json.RawMessage `json:"args"`
	// Short: the caller has sent all of the content already.
	Short bool `json:"short,omitempty"`
}

// NewUse is a call with its arguments. It leaves out a content that is in these.
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
	// Named is the path that the caller named, and what is to be done there. stream says whether
	// the content may be of any size.
	Named() (path string, op Op, stream bool)
}

// Named is what is read.
func (a ReadFile) Named() (path string, op Op, stream bool) { return a.Path, Read, a.Stream }

// Named is what is written.
func (a WriteFile) Named() (path string, op Op, stream bool) { return a.Path, Write, a.Stream }

// Named is what is edited.
func (a EditFile) Named() (path string, op Op, stream bool) { return a.Path, Edit, false }

// Named is what is listed.
func (a ListDir) Named() (path string, op Op, stream bool) { return a.Path, Read, false }

// Read are the arguments, which are valid.
func (u Use) Read() (Args, error) {
	read := map[Tool]func(Use) (Args, error){
		ReadFileTool: argsOf[ReadFile], WriteFileTool: argsOf[WriteFile], EditFileTool: argsOf[EditFile],
		AppendFileTool: argsOf[WriteFile], ListDirTool: argsOf[ListDir],
	}[u.Tool]
	if read == nil {
		return nil, invalid("cannot use tool %s: no such tool", chat.Quote(string(u.Tool)))
	}
	return read(u)
}

func argsOf[A Args](u Use) (Args, error) {
	var a A
	if err := decode(u.Args, &a); err != nil {
		return nil, invalid("cannot use the arguments of %s: %w", u.Tool, err)
	}
	return a, a.Validate()
}

// Started is a tool that was started and has its request, for somebody who speaks with it.
type Started struct {
	Tool Tool
	// In and Out are the other ends of its standard input and output.
	In, Out *os.File
	// Max bounds a file, in bytes.
	Max int64
	// Check and Linked are those of [Exchange].
	Check  Check
	Linked func(all []Link) error
}

// Talk speaks with a tool, as by [Speak], and closes its two files. It returns when ctx ends.
type Talk = func(ctx context.Context, t Started) (Answer, error)
