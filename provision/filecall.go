package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filecall"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/session"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// callTool does a call in the chat: in the session of an awake chat, in a one-shot session of
// a sleeping one. Reap cancels the call.
func (m *Manager) callTool(
	ctx context.Context, rec state.Record, c *filecall.Call,
) (files.Answer, error) {
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	ctx, done, err := m.beginCall(ctx, rec.ID)
	if err != nil {
		return files.Answer{}, err
	}
	defer done()
	if s := m.session(rec.ID); s.lives() {
		a, err := m.enterTool(ctx, rec, s, c)
		return a, m.overtaken(ctx, s, err)
	}
	return m.oneShot(ctx, rec, c)
}

// enterTool does a call in a session, in a leaf of its own, as for a run.
func (m *Manager) enterTool(
	ctx context.Context, rec state.Record, s *liveSession, c *filecall.Call,
) (a files.Answer, err error) {
	leave, err := m.letIn(ctx, rec, s)
	if err != nil {
		return a, err
	}
	defer leave()
	run := session.NewRun("file")
	leaf := m.leaf(rec, run)
	if err := leaf.Create(); err != nil {
		return a, err
	}
	a, late, err := m.enterToolLeaf(ctx, rec, s, run, c)
	if !filecall.Answered(err) {
		if u, uerr := leaf.Usage(); uerr == nil {
			err = fmt.Errorf("%w%s", err, m.outOfMemory(rec, u.OOMKills))
		}
	}
	if late {
		return a, err
	}
	return a, errors.Join(err, leaf.Remove())
}

func (m *Manager) enterToolLeaf(
	ctx context.Context, rec state.Record, s *liveSession, run string, c *filecall.Call,
) (a files.Answer, late bool, err error) {
	var b session.Files
	defer b.Close()
	e := m.behindWalls(rec, s, session.Entry{Argv: shims.FileToolArgv(), Dir: "/"})
	cmd, err := m.starter.Joining(s.Session, e, &b)
	if err != nil {
		return a, false, err
	}
	tool, err := c.Start(cmd, &b, m.leaf(rec, run).Start)
	if err != nil {
		return a, false, errors.Join(err, m.leaf(rec, run).Kill(ctx))
	}
	defer tool.Close()
	a, err = tool.Speak(ctx, m.toolPlan(rec))
	m.policy.NameRule(ctx, m.chatOf(rec), s.Init, c, err)
	filecall.Tidy(ctx, err, tool.Ended())
	late, killErr := m.leaf(rec, run).End(tool.Ended())
	return a, late, errors.Join(tool.Reason(ctx, err), killErr)
}

// overtaken replaces the error of a call that its tool did not end. s is nil for a one-shot
// session.
func (m *Manager) overtaken(ctx context.Context, s *liveSession, err error) error {
	why := filecall.Overtaken(ctx, err, func() error {
		if s == nil || !s.endsSoon() {
			return nil
		}
		return fmt.Errorf("the session of chat %s ended meanwhile (sleep, reap, or its last "+
			"process): ask again: %w", s.Chat, chat.ErrWrongPhase)
	})
	if why == nil {
		return err
	}
	m.log.Debug("a file tool was overtaken", "err", err, "by", why)
	return fmt.Errorf("cannot finish the file tool: %w", why)
}

// endsSoon reports whether chatd is ending the session, or it ends within a second: the kernel ends
// the other processes of a pid namespace before its first.
func (s *liveSession) endsSoon() bool {
	if s.ending.Load() {
		return true
	}
	select {
	case <-s.Init.Ended():
	case <-time.After(time.Second):
	}
	return !s.Init.Alive()
}
