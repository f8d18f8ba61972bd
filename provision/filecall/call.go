package filecall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Call is one call of a tool. Only its talk reads the tool's output.
type Call struct {
	Tool filewire.Tool
	Op   filewire.Op
	Path string // as the caller named it
	// Rules are what the tool checks, and Denies finds the denial by them that the tool reports, or
	// nil.
	Rules  *filewire.Rules
	Denies func(reported *filewire.Denial) *filewire.Denial

	args   interface{ Validate() error }
	links  []string // for [filewire.ResolveTool]
	stream bool
	talk   filewire.Talk
}

// Bounds on a call whose content is in the request or is a page, and on a streaming call. A slow
// call delays the wake of a sleeping chat.
const (
	fileTime   = time.Minute
	streamTime = 15 * time.Minute
)

// New returns the call that u asks for. The request is made here: talk cannot choose another tool
// or path. The error is [chat.ErrInvalid] for arguments that the tool does not take.
func New(u filewire.Use, talk filewire.Talk) (*Call, error) {
	args, err := u.Read()
	if err != nil {
		return nil, err
	}
	c := newCall(u.Tool, args, talk)
	c.stream = c.stream && !u.Short
	return c, nil
}

func newCall(tool filewire.Tool, args filewire.Args, talk filewire.Talk) *Call {
	c := &Call{Tool: tool, args: args, talk: talk}
	c.Path, c.Op, c.stream = args.Named()
	return c
}

// NewResolve returns a call that asks the chat's side for the targets of those names that links
// redirect, and for what it may not use. It writes them to real, by name.
func NewResolve(names []string, real *map[string]filewire.Link) *Call {
	c := &Call{Tool: filewire.ResolveTool, Op: filewire.Read, args: filewire.Resolve{}, links: names}
	c.talk = func(ctx context.Context, t filewire.LiveTool) (_ filewire.Answer, err error) {
		defer func() { _ = errors.Join(t.In.Close(), t.Out.Close()) }() // nothing is lost
		defer context.AfterFunc(ctx, func() { _ = t.Out.SetReadDeadline(past) })()
		*real, err = filewire.ReadTargets(t.Out, names)
		return filewire.Answer{}, err
	}
	return c
}

// Writes reports whether the tool changes a file.
func (c *Call) Writes() bool { return c.Op != filewire.Read }

// WithTimeout bounds the call in time; the cause of the end is then a [chat.ErrBusy].
func (c *Call) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := fileTime
	if c.stream {
		limit = streamTime
	}
	why := fmt.Errorf("it took longer than %s: %w", limit, chat.ErrBusy)
	return context.WithTimeoutCause(ctx, limit, why)
}
