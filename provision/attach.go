package provision

import (
	"context"
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// Attach shows the chat's terminal to an operator, and wakes the chat if it is asleep. A client
// of the chat's tmux runs as the chat, inside, in a fresh terminal that a process of the chat has
// made. Only bytes cross, through pipes. The client is a run, which takes input and new sizes.
// It ends with ctx, by the client's own command, or with the session. A chat's limit of runs
// bounds how many operators may be attached.
//
// The chat controls the bytes that begun is given to read: package termsafe filters them for a
// terminal.
func (m *Manager) Attach(ctx context.Context, id chat.ID, a chat.Attach, begun func(run string, stdout, stderr *os.File)) (chat.RunResult, error) {
	if err := a.Validate(); err != nil {
		return chat.RunResult{}, err
	}
	rec, err := m.reach(ctx, id)
	if err == nil {
		err = m.switchedOff(ctx, rec, chat.ToolTerminal, "attach")
	}
	if err != nil {
		return chat.RunResult{}, err
	}
	rec, s, err := m.use(ctx, id)
	if err != nil {
		return chat.RunResult{}, err
	}
	spec := chat.RunSpec{Argv: tmux.AttachArgv(plan.Socket, a.ReadOnly), TTY: &a.TTY, OpenStdin: true}
	r, err := m.admitRun(ctx, rec, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer m.runs.Forget(r)
	detail := map[string]string{"run": r.Info.ID, "read_only": fmt.Sprint(a.ReadOnly)}
	if err := m.audit(ctx, rec, "attach", "intent", detail); err != nil {
		return chat.RunResult{}, err
	}
	res, err := m.attach(ctx, rec, s, r, spec, begun)
	m.touch(rec)
	return res, m.auditOutcome(ctx, rec, "attach", detail, err)
}

func (m *Manager) attach(ctx context.Context, rec state.Record, s *liveSession, r *background.Run, spec chat.RunSpec, begun func(run string, stdout, stderr *os.File)) (chat.RunResult, error) {
	within, cancel := r.Within(ctx)
	defer cancel()
	go func() { // the client ends with its session, unless the chat has stopped the client
		defer cancel()
		select {
		case <-s.Init.Ended():
		case <-within.Done():
		}
	}()
	e := m.runEntry(rec, r, spec)
	e.OpenStdin, e.Started, e.Begun = true, r.Began, begun
	e.Env = append(e.Env, "TERM=xterm-256color") // close enough to the operator's terminal
	ended, err := m.enter(within, rec, s, e)
	if err == nil && ctx.Err() != nil {
		return chat.RunResult{}, nil // the operator detached: a normal end
	}
	return m.runResult(rec, r, ended), err
}
