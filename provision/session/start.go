package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/tmux"
)

// Spec is the first process of a session.
type Spec struct {
	Chat chat.ID
	// View is what the session sees; Limits are those of setrlimit(2).
	View   plan.View
	Limits chat.ProcessLimits
	// Argv is the program, as the session sees it; Env is KEY=value, besides the view's own.
	Argv, Env []string
	// Rules is called while the session waits at the start barrier, with its pid 1; nil is none.
	Rules func(context.Context, *sys.ProcessHandle) error
}

// ErrNoPrompt is the error of a session that ended before its shell was at a prompt.
var ErrNoPrompt = errors.New("it ended before its prompt")

// promptTimeout bounds the wait for a prompt; a session whose .bashrc takes longer starts all
// the same.
const promptTimeout = 10 * time.Second

// mountTimeout is added to [StartTimeout] for each path exposed to a session, because bubblewrap
// reads all mounts again for each mount that it makes.
const mountTimeout = 50 * time.Millisecond

// timeout bounds each wait for the start of the session.
func (p Spec) timeout() time.Duration {
	return StartTimeout + time.Duration(len(p.View.Exposed))*mountTimeout
}

// TerminalArgv is a command that starts the terminal's server and ends. Bubblewrap's pid 1 then
// holds the session; without a pid namespace, in tests, there is none, and another process must
// stay.
func TerminalArgv(v plan.View) []string {
	argv := tmux.StartArgv(plan.Socket, plan.InsideTmux, plan.ShellArgv())
	if v.LeavesOut(chat.LayerProc) {
		argv = append([]string{"/bin/sh", "-c", `"$@" && exec /bin/sleep infinity`, "sh"}, argv...)
	}
	return argv
}

// Start starts bubblewrap as the chat, in the chat's cgroup, and waits until the shell writes a
// byte to prompt. That is the read end of the view's PromptFIFO. A session that ends before is
// [ErrNoPrompt]. After an error nothing of the session remains.
func (s *Starter) Start(ctx context.Context, p Spec, prompt *os.File) (*Session, error) {
	var b Files
	defer b.Close()
	cmd := s.Bubblewrap(p, &b)
	if b.Err != nil {
		return nil, b.Err
	}
	began := time.Now()
	if err := s.Launch(p, cmd, &b); err != nil {
		return nil, errors.Join(err, s.Abandon(p.Chat, p.View.UID, nil))
	}
	b.CloseChildEnds()
	go Collect(cmd)
	s.opt.Log.Debug("session", "chat", p.Chat, "born", time.Since(began))
	in := &Session{Chat: p.Chat, UID: p.View.UID, saved: saved{Exposed: p.View.Exposed}}
	if err := s.await(ctx, in, p, &b, prompt); err != nil {
		err = fmt.Errorf("%w%s", err, b.Complaint())
		return nil, errors.Join(err, s.Abandon(in.Chat, in.UID, in.Init))
	}
	s.opt.Log.Debug("session", "chat", p.Chat, "prompt", time.Since(began))
	in.Init.Boot = s.opt.Boot
	return in, nil
}

// await returns when the session is up and is the main process of its unit, if there is one.
func (s *Starter) await(ctx context.Context, in *Session, p Spec, b *Files, prompt *os.File) error {
	if err := in.awaitStart(ctx, b, p.timeout(), prompt); err != nil {
		return err
	}
	if err := s.opt.Groups.SetMainProcess(in.Chat, in.Init.PID); err != nil {
		return err
	}
	var err error
	in.Invocation, err = s.opt.Groups.Invocation(in.Chat)
	return err
}

// awaitStart reads, in the order in which they come: bubblewrap's pid 1, the report of the
// enforced walls, and the prompt.
func (in *Session) awaitStart(
	ctx context.Context, b *Files, timeout time.Duration, prompt *os.File,
) (err error) {
	if in.Init, err = b.AwaitInit(ctx, timeout); err != nil {
		return err
	}
	if in.Report, err = b.AwaitReport(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("cannot confine the session: %w", err)
	}
	return in.awaitPrompt(ctx, prompt, time.Now().Add(promptTimeout))
}

// awaitPrompt waits for the shell's byte. A .bashrc that never comes to a prompt is not an error, so
// that the chat has a session to repair it in. A session that ended is one.
func (in *Session) awaitPrompt(ctx context.Context, prompt *os.File, deadline time.Time) error {
	for time.Now().Before(deadline) {
		if err := prompt.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return fmt.Errorf("cannot wait for the prompt: %w", err)
		}
		var b [1]byte
		_, err := prompt.Read(b[:])
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("cannot wait for the prompt: %w", err)
		case !in.Init.Alive():
			return fmt.Errorf("cannot start the session: %w", ErrNoPrompt)
		case ctx.Err() != nil:
			return fmt.Errorf("cannot wait for the prompt: %w", context.Cause(ctx))
		}
	}
	return nil
}
