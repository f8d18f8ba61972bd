package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// callTool does a call in the chat: as a run when the chat is awake, in a one-shot
// session when it is asleep. Reap cancels the call.
func (m *Manager) callTool(ctx context.Context, rec state.Record, c fileCall) (files.Answer, error) {
	limit := fileTime
	if c.stream {
		limit = streamTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s: %w", limit, chat.ErrBusy))
	defer cancel()
	ctx, done, err := m.beginCall(ctx, rec.ID)
	if err != nil {
		return files.Answer{}, err
	}
	defer done()
	if s := m.session(rec.ID); s != nil && s.init.alive() {
		a, err := m.enterTool(ctx, rec, s, c)
		return a, m.overtaken(ctx, s, err)
	}
	return m.oneShot(ctx, rec, c)
}

// fileCalls are the calls under way, by chat.
// The zero value is ready.
type fileCalls struct {
	mu    sync.Mutex
	chats map[chat.ID]*chatCalls
}

// chatCalls are the calls of one chat: so many at once, and the others wait. Each is
// some ten tasks of the chat's own limit.
type chatCalls struct {
	slots chan struct{}
	cuts  map[*context.CancelCauseFunc]bool
}

const toolsAtOnce = 4

// errCut ends the calls of a chat that is reaped.
var errCut = fmt.Errorf("the chat is being reaped: %w", chat.ErrWrongPhase)

// begin waits for a place, and lets cut end ctx until done is called.
func (f *fileCalls) begin(ctx context.Context, id chat.ID) (_ context.Context, done func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := f.join(id, &cancel)
	leave := func() { cancel(nil); f.leave(id, &cancel) }
	select {
	case c.slots <- struct{}{}:
		return ctx, func() { <-c.slots; leave() }, nil
	case <-ctx.Done():
		err := fmt.Errorf("cannot wait for the other file tools of chat %s: %w", id, context.Cause(ctx))
		leave()
		return ctx, nil, err
	}
}

func (f *fileCalls) join(id chat.ID, cancel *context.CancelCauseFunc) *chatCalls {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chats == nil {
		f.chats = map[chat.ID]*chatCalls{}
	}
	c := f.chats[id]
	if c == nil {
		c = &chatCalls{make(chan struct{}, toolsAtOnce), map[*context.CancelCauseFunc]bool{}}
		f.chats[id] = c
	}
	c.cuts[cancel] = true
	return c
}

func (f *fileCalls) leave(id chat.ID, cancel *context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.chats[id]
	if delete(c.cuts, cancel); len(c.cuts) == 0 {
		delete(f.chats, id)
	}
}

// cut ends the chat's calls.
func (f *fileCalls) cut(id chat.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.chats[id]; c != nil {
		for cancel := range c.cuts {
			(*cancel)(errCut)
		}
	}
}

// toolStdio is the tool's streams. stderr is a file of fixed size, for when the
// tool does not come to be.
type toolStdio struct {
	inR, inW, outR, outW *os.File
}

func newToolStdio() (*toolStdio, error) {
	t := &toolStdio{}
	var err error
	if t.inR, t.inW, err = os.Pipe(); err == nil {
		t.outR, t.outW, err = os.Pipe()
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("cannot make the streams of a file tool: %w", err)
	}
	return t, nil
}

func (t *toolStdio) closeChildEnds() { closeFiles(t.inR, t.outW) }

func (t *toolStdio) close() { closeFiles(t.inR, t.inW, t.outR, t.outW) }

// closeFiles closes those that are there and not closed yet.
func closeFiles(all ...*os.File) {
	for _, f := range all {
		if f != nil {
			_ = f.Close() // a pipe; a second close is no harm
		}
	}
}

// talk sends the request and takes the answer. When ctx ends both ends of the
// conversation do, whatever the other side does.
func (t *toolStdio) talk(ctx context.Context, may shims.FileTool, c fileCall) (files.Answer, error) {
	req, err := files.NewRequest(c.tool, c.args)
	if err != nil {
		return files.Answer{}, err
	}
	line, err := may.Line()
	if err != nil {
		return files.Answer{}, err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = t.inW.SetWriteDeadline(past), t.outR.SetReadDeadline(past)
	})
	defer stop()
	if _, err := t.inW.Write(line); err != nil {
		return files.Answer{}, fmt.Errorf("cannot send the request: %w", err)
	}
	a, err := files.Call(t.inW, t.outR, req, c.Exchange)
	return a, c.believable(err)
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// believable refuses a denial by a rule that the tools do not have: what the rules
// say is said here.
func (c fileCall) believable(err error) error {
	var f *files.Failure
	if !errors.As(err, &f) || f.Denial == nil {
		return err
	}
	d := f.Denial
	d.Tool, d.Op, d.Layer = c.tool, c.op, "files"
	switch d.Rule {
	case files.RuleKernel:
		d.Layer = files.RuleKernel
	case files.RuleWorkspace, files.RuleHardLink:
		d.Place = ""
	default:
		return fmt.Errorf("cannot use the answer: it is denied by rule %s, which is none of the tools'", chat.Quote(d.Rule))
	}
	return err
}

// enterTool does a call in a session, in a leaf of its own like every run.
func (m *Manager) enterTool(ctx context.Context, rec state.Record, s *session, c fileCall) (a files.Answer, err error) {
	run := m.newRun("file")
	if err := m.createRun(rec.ID, run); err != nil {
		return a, err
	}
	a, late, err := m.enterToolLeaf(ctx, rec, s, run, c)
	if !answered(err) {
		if u, uerr := m.groups.RunUsage(rec.ID, run); uerr == nil {
			err = fmt.Errorf("%w%s", err, m.outOfMemory(rec, u.OOMKills))
		}
	}
	if late {
		return a, err
	}
	return a, errors.Join(err, m.groups.RemoveRun(rec.ID, run))
}

func (m *Manager) enterToolLeaf(ctx context.Context, rec state.Record, s *session, run string, c fileCall) (a files.Answer, late bool, err error) {
	var b boundFiles
	defer b.close()
	cmd, err := m.nsenterCommand(rec, s, entry{argv: shims.FileToolArgv(), dir: "/"}, &b)
	if err != nil {
		return a, false, err
	}
	ended, stdio, err := m.startTool(cmd, &b, func(cmd *exec.Cmd) error { return m.startInRun(rec.ID, run, cmd) })
	if err != nil {
		return a, false, errors.Join(err, m.killRun(ctx, rec, run))
	}
	defer stdio.close()
	a, err = stdio.talk(ctx, m.toolPlan(rec), c)
	m.nameRule(ctx, rec, c, s.init, err)
	if !answered(err) {
		waitSome(ended)
	}
	late, killErr := m.endLeaf(rec, run, ended)
	return a, late, errors.Join(m.toolError(ctx, &b, err), killErr)
}

// tidyTime is how long a tool that was cut short may take to take back what it began:
// its input ends, and it knows. What it leaves, the next write takes away.
const tidyTime = time.Second

func waitSome(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(tidyTime):
	}
}

// answered reports whether the tool came to its end by itself.
func answered(err error) bool {
	var f *files.Failure
	return err == nil || errors.As(err, &f)
}

// startTool gives cmd its streams and starts it. ended is closed when it was
// waited for, which is only after somebody killed its cgroup or it ended.
func (m *Manager) startTool(cmd *exec.Cmd, b *boundFiles, start func(*exec.Cmd) error) (ended chan struct{}, _ *toolStdio, err error) {
	b.stderr = b.stdio("stderr")
	stdio, err := newToolStdio()
	if err := errors.Join(b.err, err); err != nil {
		return nil, nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.inR, stdio.outW, b.stderr
	if err := start(cmd); err != nil {
		stdio.close()
		return nil, nil, err
	}
	b.closeChildEnds()
	stdio.closeChildEnds()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		collect(cmd)
	}()
	return ended, stdio, nil
}

// toolError says why there was no answer: because of ctx, because the tool was
// not confined, or whatever the tool did.
func (m *Manager) toolError(ctx context.Context, b *boundFiles, err error) error {
	var d *files.Denial
	var body *files.BodyError
	switch {
	case answered(err), errors.As(err, &d), errors.As(err, &body):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("cannot finish the file tool: %w", context.Cause(ctx))
	}
	var report shims.Report
	switch rerr := readJSON(b.report, time.Now().Add(time.Second), &report); {
	case rerr != nil: // most often a chat at its limit of tasks
		return fmt.Errorf("cannot start the file tool: %w%s: %w", err, b.complaint(), chat.ErrBusy)
	case report.Error != "":
		return fmt.Errorf("cannot start the file tool: %s: %w", report.Error, errNotConfined)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("cannot finish the file tool: it ended without an answer: %w%s: %w", err, b.complaint(), chat.ErrBusy)
	}
	return fmt.Errorf("%w%s", err, b.complaint())
}
