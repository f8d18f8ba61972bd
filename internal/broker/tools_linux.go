package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// The messages about a file tool: its descriptors to the front, the front's report, and its end.

type (
	// startedTool accompanies the descriptors. N identifies the tool within its call.
	startedTool struct {
		N    int           `json:"n"`
		Tool filewire.Tool `json:"tool"`
		Max  int64         `json:"max"`
	}
	// toolMessage is the front's report about a tool.
	toolMessage struct {
		N      int         `json:"n"`
		Report *toolReport `json:"report"`
	}
	// toolEnded is the end of a tool.
	toolEnded struct {
		N int `json:"n"`
	}
	// toolReport is how a tool ended: with an answer, which may be a failure, or without one.
	toolReport struct {
		Answer filewire.Answer `json:"answer"`
		// Broken means that the caller's content could not be read.
		Broken bool `json:"broken,omitempty"`
		// Ended means that the tool ended without an answer.
		Ended bool     `json:"ended,omitempty"`
		Error *failure `json:"error,omitempty"`
	}
)

// maxTools is how many tools one call has.
const maxTools = 2

// tools are the file tools of one call, in chatd-root.
type tools struct {
	mu  sync.Mutex
	all []*heldTool
}

// heldTool is a tool that the front speaks with.
type heldTool struct {
	filewire.LiveTool
	ended chan toolEnd // its first end
}

type toolEnd struct {
	filewire.Answer
	err error
}

// talk passes a tool to the front, closes its descriptors here, and returns the front's report. The
// report is not verified.
func (c *call) talk(ctx context.Context, s filewire.LiveTool) (filewire.Answer, error) {
	defer func() { _ = errors.Join(s.In.Close(), s.Out.Close()) }()
	t := &heldTool{LiveTool: s, ended: make(chan toolEnd, 1)}
	n, err := c.tools.add(t)
	if err != nil {
		return filewire.Answer{}, err
	}
	defer c.tools.remove(n)
	p, err := encode(startedTool{n, s.Tool, s.Max})
	if err == nil {
		err = errors.Join(c.tellFiles(tool, p, s.In, s.Out), s.In.Close(), s.Out.Close())
	}
	if err != nil {
		return filewire.Answer{}, err
	}
	defer c.tellStop(n)
	select {
	case e := <-t.ended:
		return e.Answer, e.err
	case <-ctx.Done():
		return filewire.Answer{}, fmt.Errorf("cannot wait for the front: %w", context.Cause(ctx))
	}
}

func (c *call) tellStop(n int) {
	if p, err := encode(toolEnded{n}); err == nil {
		_ = c.tell(toolStop, p) // a front that is gone needs none
	}
}

func (t *tools) add(h *heldTool) (n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == maxTools {
		return 0, fmt.Errorf("cannot pass more than %d file tools in a call", maxTools)
	}
	t.all = append(t.all, h)
	return len(t.all) - 1, nil
}

func (t *tools) remove(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[n] = nil
}

// find returns nil for a tool that has ended: a message about it is too late.
func (t *tools) find(n int) (*heldTool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < 0 || n >= len(t.all) {
		return nil, fmt.Errorf("cannot use tool %d: there are %d", n, len(t.all))
	}
	return t.all[n], nil
}

// hear handles a message from the front about a tool. Only the call's watcher calls it.
func (c *call) hear(p []byte) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("cannot use what the front says: panic: %v\n%s", cause, debug.Stack())
		}
	}()
	var m toolMessage
	if err := decode(p, &m); err != nil {
		return err
	}
	t, err := c.tools.find(m.N)
	switch {
	case err != nil || t == nil:
		return err
	case m.Report != nil:
		t.end(m.Report.result())
		return nil
	}
	return errors.New("cannot use what the front says about a file tool: nothing")
}

// end records how the tool ended, unless it already has.
func (t *heldTool) end(a filewire.Answer, err error) {
	select {
	case t.ended <- toolEnd{a, err}:
	default:
	}
}

// result converts the front's report to the results of [filewire.Speak].
func (r *toolReport) result() (filewire.Answer, error) {
	err := r.Answer.Check()
	switch {
	case r.Broken:
		return filewire.Answer{}, &filewire.BodyError{
			Err: chat.Invalid("the front could not read the content"),
		}
	case r.Error != nil:
		f := failure{Words: r.Error.Words, Kinds: r.Error.Kinds}
		if f.Words = f.Words[:min(len(f.Words), maxWords)]; r.Ended {
			return filewire.Answer{}, &remote{f.Words, []error{io.ErrUnexpectedEOF}}
		}
		return filewire.Answer{}, f.err()
	}
	return r.Answer, err
}

// report converts the results of [filewire.Speak] to the front's report.
func report(a filewire.Answer, err error) *toolReport {
	var f *filewire.Failure
	var body *filewire.BodyError
	r := &toolReport{}
	r.Answer = filewire.Answer{Path: a.Path, Size: a.Size, Bytes: a.Bytes, SHA256: a.SHA256}
	switch {
	case err == nil:
	case errors.As(err, &body):
		r.Broken = true
	case errors.As(err, &f):
		r.Answer.Failure = f
	default:
		f := failureOf(err)
		r.Error = &failure{Words: f.Words, Kinds: f.Kinds}
		r.Ended = errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed)
	}
	return r
}

// parts joins the packets of one message. Long messages count towards the same bound as long
// requests.
type parts struct {
	large chan struct{}
	all   []byte
	holds bool
}

// add passes the whole message to use when its last part arrives.
func (m *parts) add(p []byte, last bool, use func([]byte) error) error {
	if last && !m.holds {
		return use(p)
	}
	if !m.holds {
		m.large <- struct{}{}
		m.holds = true
	}
	if len(m.all)+len(p) > maxRequest {
		return fmt.Errorf("cannot use a message: it has more than %d bytes", maxRequest)
	}
	if m.all = append(m.all, p...); !last {
		return nil
	}
	defer m.drop()
	return use(m.all)
}

func (m *parts) drop() {
	if m.holds {
		<-m.large
	}
	m.all, m.holds = nil, false
}
