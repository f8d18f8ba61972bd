package filecall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims/files"
)

// Call is one call of a tool. Only its talk reads the tool's output.
type Call struct {
	Tool files.Tool
	Op   files.Op
	Path string // as the caller named it
	// Rules are what the tool checks, and Denies finds the denial by them that the tool reports, or
	// nil.
	Rules  *files.Rules
	Denies func(reported *files.Denial) *files.Denial

	args   interface{ Validate() error }
	links  []string // for [files.ResolveTool]
	stream bool
	talk   files.Talk
}

// Bounds on a call whose content is in the request or is a page, and on a streaming call. A slow
// call delays the wake of a sleeping chat.
const (
	fileTime   = time.Minute
	streamTime = 15 * time.Minute
)

// New returns the call that u asks for. The request is made here: talk cannot choose another tool
// or path. The error is [chat.ErrInvalid] for arguments that the tool does not take.
func New(u files.Use, talk files.Talk) (*Call, error) {
	args, err := u.Read()
	if err != nil {
		return nil, err
	}
	c := newCall(u.Tool, args, talk)
	c.stream = c.stream && !u.Short
	return c, nil
}

func newCall(tool files.Tool, args files.Args, talk files.Talk) *Call {
	c := &Call{Tool: tool, args: args, talk: talk}
	c.Path, c.Op, c.stream = args.Named()
	return c
}

// NewResolve returns a call that asks the chat's side for the targets of those names that links
// redirect, and for what it may not use. It writes them to real, by name.
func NewResolve(names []string, real *map[string]files.Link) *Call {
	c := &Call{Tool: files.ResolveTool, Op: files.Read, args: files.Resolve{}, links: names}
	c.talk = func(ctx context.Context, t files.LiveTool) (_ files.Answer, err error) {
		defer func() { _ = errors.Join(t.In.Close(), t.Out.Close()) }() // nothing is lost
		defer context.AfterFunc(ctx, func() { _ = t.Out.SetReadDeadline(past) })()
		*real, err = files.ReadTargets(t.Out, names)
		return files.Answer{}, err
	}
	return c
}

// Writes reports whether the tool changes a file.
func (c *Call) Writes() bool { return c.Op != files.Read }

// WithTimeout bounds the call in time; the cause of the end is then a [chat.ErrBusy].
func (c *Call) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := fileTime
	if c.stream {
		limit = streamTime
	}
	why := fmt.Errorf("it took longer than %s: %w", limit, chat.ErrBusy)
	return context.WithTimeoutCause(ctx, limit, why)
}
