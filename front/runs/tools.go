package runs

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/verbs"
)

// Tools are the file tools of chats.
type Tools struct{ below verbs.FileTools }

// NewTools returns the tools of below.
func NewTools(below verbs.FileTools) *Tools { return &Tools{below} }

// maxList bounds a list in bytes: the most entries of one call, each a line with a name of 255
// bytes and its kind.
const maxList = filewire.MaxEntries * (255 + 16)

// ReadFile is [verbs.Chats].
func (t *Tools) ReadFile(
	ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
) (filewire.Answer, error) {
	return t.use(ctx, id, filewire.ReadFileTool, a, func(s filewire.LiveTool) filewire.Exchange {
		if !a.Stream {
			return filewire.Exchange{Begin: begin, Limit: filewire.MaxPage}
		}
		return filewire.Exchange{Begin: bounded(a, s.Max, begin), Limit: s.Max}
	})
}

// ListDir is [verbs.Chats].
func (t *Tools) ListDir(
	ctx context.Context, id chat.ID, a filewire.ListDir, begin filewire.Begin,
) (filewire.Answer, error) {
	return t.use(ctx, id, filewire.ListDirTool, a, func(filewire.LiveTool) filewire.Exchange {
		return filewire.Exchange{Begin: begin, Limit: maxList}
	})
}

// EditFile is [verbs.Chats].
func (t *Tools) EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error) {
	return t.use(ctx, id, filewire.EditFileTool, a, func(filewire.LiveTool) filewire.Exchange {
		return filewire.Exchange{}
	})
}

// WriteFile is [verbs.Chats].
func (t *Tools) WriteFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	return t.write(ctx, id, filewire.WriteFileTool, a, body)
}

// AppendFile is [verbs.Chats].
func (t *Tools) AppendFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	return t.write(ctx, id, filewire.AppendFileTool, a, body)
}

func (t *Tools) write(
	ctx context.Context, id chat.ID, tool filewire.Tool, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	if a.Content != nil {
		body = strings.NewReader(*a.Content)
	}
	c := &content{body, make(chan struct{}, 1), make(chan error, 1)}
	out, err := t.use(ctx, id, tool, a, func(filewire.LiveTool) filewire.Exchange {
		return filewire.Exchange{Body: c.body()}
	})
	return out, c.explain(ctx, err)
}

// bounded refuses a stream that the bound of a file would cut before the end of the file.
func bounded(a filewire.ReadFile, max int64, begin filewire.Begin) filewire.Begin {
	return func(first filewire.Answer) io.Writer {
		if left := first.Size - a.Offset; a.Length == 0 && left > max {
			return refusing{chat.Invalid("the file has %d bytes from there, which is more than "+
				"file_max, %d; ask for a length", left, max)}
		}
		return begin(first)
	}
}

// refusing is a writer whose every Write fails with err.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// use makes one call. The error is chatd-root's, which knows the rules.
func (t *Tools) use(
	ctx context.Context, id chat.ID, tool filewire.Tool, args filewire.Args,
	exchange func(filewire.LiveTool) filewire.Exchange,
) (filewire.Answer, error) {
	u, err := filewire.NewUse(tool, args)
	if err != nil {
		return filewire.Answer{}, err
	}
	var out filewire.Answer
	talk := func(ctx context.Context, s filewire.LiveTool) (a filewire.Answer, err error) {
		if a, err = speak(ctx, s, exchange(s)); err == nil {
			out = a
		}
		return a, err
	}
	if err := t.below.FileTool(ctx, id, u, talk); err != nil {
		return filewire.Answer{}, err
	}
	return out, nil
}

// speak speaks with a tool, until ctx ends.
func speak(ctx context.Context, s filewire.LiveTool, x filewire.Exchange) (filewire.Answer, error) {
	defer s.Out.Close() // nothing was written to it
	// The end of ctx ends both, whatever the tool does.
	defer context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_, _ = s.In.SetWriteDeadline(past), s.Out.SetReadDeadline(past)
	})()
	return filewire.Speak(s.In, s.Out, x)
}

// content is a caller's content, and the error of reading it.
type content struct {
	from   io.Reader
	reads  chan struct{} // has a token while it is read
	failed chan error
}

// body is nil where there is none.
func (c *content) body() io.Reader {
	if c.from == nil {
		return nil
	}
	return c
}

// Read is the content's.
func (c *content) Read(p []byte) (int, error) {
	c.reads <- struct{}{}
	defer func() { <-c.reads }()
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		select {
		case c.failed <- err:
		default:
		}
	}
	return n, err
}

// contentTimeout bounds the wait for the error of a body after its caller's context has ended.
const contentTimeout = time.Second

// explain joins the error of the content, if any, before chatd-root's error about it. A body that
// cannot be read also ends the caller's context, perhaps before the error is known: explain then
// waits for it.
func (c *content) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		select {
		case c.reads <- struct{}{}: // no Read is in progress
		case <-time.After(contentTimeout):
		}
	}
	select {
	case own := <-c.failed:
		return errors.Join(&filewire.BodyError{Err: own}, err)
	default:
		return err
	}
}
