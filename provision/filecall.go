package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// callTool does a call in the chat: in the session of an awake chat, in a one-shot session of
// a sleeping one. Reap cancels the call.
func (m *Manager) callTool(ctx context.Context, rec state.Record, c *fileCall) (files.Answer, error) {
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
	if s := m.session(rec.ID); s != nil && s.init.Alive() {
		a, err := m.enterTool(ctx, rec, s, c)
		return a, m.overtaken(ctx, s, err)
	}
	return m.oneShot(ctx, rec, c)
}

// fileCalls are the running calls, by chat.
// The zero value is ready.
type fileCalls struct {
	mu    sync.Mutex
	chats map[chat.ID]*chatCalls
}

// chatCalls are the calls of one chat: toolsAtOnce run simultaneously, the others wait. Each
// takes some ten tasks of the chat's own limit.
type chatCalls struct {
	slots chan struct{}
	cuts  map[*context.CancelCauseFunc]bool
}

const toolsAtOnce = 4

// errCut ends the calls of a chat that is reaped.
var errCut = fmt.Errorf("the chat is being reaped: %w", chat.ErrWrongPhase)

// begin waits for a slot. Until done is called, cut cancels the returned context.
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

// cut cancels the chat's calls.
func (f *fileCalls) cut(id chat.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.chats[id]; c != nil {
		for cancel := range c.cuts {
			(*cancel)(errCut)
		}
	}
}

// toolStdio is the tool's streams. stderr is a file of fixed size, for the errors of a tool that
// does not start.
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

// closeFiles closes the files that are not nil, closed or not.
func closeFiles(all ...*os.File) {
	for _, f := range all {
		if f != nil {
			_ = f.Close() // a pipe; a second close does no harm
		}
	}
}

// request sends the request. The end of ctx ends it, whatever the tool does.
func (t *toolStdio) request(ctx context.Context, may shims.FileTool, c *fileCall) error {
	req, err := files.NewRequest(c.tool, c.args)
	if err != nil {
		return err
	}
	line, err := may.Line()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = t.inW.SetWriteDeadline(past), t.outR.SetReadDeadline(past)
	})
	defer stop()
	req.Links = c.links
	if _, err = t.inW.Write(line); err == nil {
		err = files.Send(t.inW, req)
	}
	if err != nil {
		return fmt.Errorf("cannot send the request: %w", err)
	}
	return nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// speak has c.talk speak with the tool, which has its request, and gives it the other ends of the
// streams.
func (m *Manager) speak(
	ctx context.Context, rec state.Record, t *toolStdio, c *fileCall,
) (files.Answer, error) {
	if err := t.request(ctx, m.toolPlan(rec), c); err != nil {
		return files.Answer{}, err
	}
	s := files.Started{Tool: c.tool, In: t.inW, Out: t.outR, Max: m.fileMax(), Linked: c.linked}
	s.Check = func(op files.Op, name string) *files.Denial { return c.check(op, name) }
	t.inW, t.outR = nil, nil
	a, err := c.talk(ctx, s)
	return a, c.believable(err)
}

// enterTool does a call in a session, in a leaf of its own, as for a run.
func (m *Manager) enterTool(ctx context.Context, rec state.Record, s *session, c *fileCall) (a files.Answer, err error) {
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

func (m *Manager) enterToolLeaf(ctx context.Context, rec state.Record, s *session, run string, c *fileCall) (a files.Answer, late bool, err error) {
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
	a, err = m.speak(ctx, rec, stdio, c)
	m.nameRule(ctx, rec, c, s.init, err)
	if !answered(err) {
		waitSome(ended)
	}
	late, killErr := m.endLeaf(rec, run, ended)
	return a, late, errors.Join(m.toolError(ctx, &b, err), killErr)
}

// tidyTime is how long an interrupted tool may take to undo its unfinished work, once its
// input has ended. The next write removes the remains.
const tidyTime = time.Second

func waitSome(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(tidyTime):
	}
}

// startTool gives cmd its streams and starts it. ended is closed once cmd was reaped, after it
// exited or its cgroup was killed.
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
