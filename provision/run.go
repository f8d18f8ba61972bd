package provision

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/admission"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/tmux"
)

// runBegun is a run that is registered and whose begin is audited.
type runBegun struct {
	subject
	s      *liveSession
	r      *background.Run
	spec   chat.RunSpec
	detail map[string]string // of the audit log
}

// Run runs one command in the chat, beside its terminal and behind the same
// walls, and returns when it and everything it started has ended. A chat that is
// asleep is woken first. The command's streams go to begun, with nothing of them left here, and
// the result has no output. A command whose streams nobody reads any more ends by SIGPIPE, or is
// blocked until its timeout.
func (rs *runner) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec, begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	b, err := rs.begin(ctx, id, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer rs.runs.Forget(b.r)
	runCtx, cancel := context.WithDeadline(ctx, b.r.Info.StartedAt.Add(b.r.Info.Timeout.D()))
	defer cancel()
	runCtx, stop := b.r.Within(runCtx)
	defer stop()
	e := rs.entry(b.subject, b.r, spec)
	e.Stdin, e.OpenStdin = []byte(spec.Stdin), spec.StdinStaysOpen()
	e.Started, e.Begun = b.r.Began, begun
	ended, err := rs.enter(runCtx, b.subject, b.s, e)
	err = rs.notEntered(ctx, b, err)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot finish the run: the caller went away: %w", context.Cause(ctx))
	}
	rs.chats.touch(id)
	res := rs.result(b.subject, b.r, ended)
	if res.EndedBy != "" {
		b.detail["ended_by"] = string(res.EndedBy)
	}
	return res, rs.trail.Outcome(ctx, b.Record, "run", b.detail, err)
}

// begin checks everything for which a run may be refused before it starts anything, wakes
// the chat, registers the run, and audits that it begins.
func (rs *runner) begin(ctx context.Context, id chat.ID, spec chat.RunSpec) (b runBegun, err error) {
	if err := spec.Validate(); err != nil {
		return b, err
	}
	c, err := rs.chats.reach(ctx, id)
	if err == nil {
		err = rs.checkRun(ctx, c, spec)
	}
	if err != nil {
		return b, err
	}
	timeout, err := c.profile.RunTimeout(spec.Timeout, chat.DefaultTimeout)
	if err != nil {
		return b, err
	}
	st := rs.starts.New()
	defer st.End()
	if err := st.MayBegin(ctx); err != nil {
		return b, err
	}
	if b.subject, b.s, err = rs.use(ctx, c, st); err != nil {
		return b, err
	}
	rs.freshPrograms()
	spec.Timeout = chat.Duration(timeout)
	b.spec = spec
	if b.r, err = rs.admitRun(ctx, b.subject, spec); err != nil {
		return b, rs.shares.Refused(ctx, "run", err)
	}
	b.detail = map[string]string{"run": b.r.Info.ID}
	if spec.Background {
		b.detail["background"] = "true"
	}
	if err = rs.trail.WriteArgv(ctx, b.Record, "run", "intent", spec.CommandLine(), b.detail); err != nil {
		rs.runs.Forget(b.r)
	}
	return b, err
}

// entry returns the entry of a run's command into the session.
func (rs *runner) entry(rec subject, r *background.Run, spec chat.RunSpec) session.Entry {
	e := session.Entry{Run: r.Info.ID, Grace: r.Grace, Argv: spec.CommandLine(), Env: chat.EnvLines(spec.Env),
		Dir: spec.Dir(rec.home)}
	if spec.TTY != nil {
		e.Argv = plan.PTYArgv(*spec.TTY, e.Argv)
	}
	return e
}

func (rs *runner) result(rec subject, r *background.Run, out session.CommandResult) chat.RunResult {
	res := chat.RunResult{
		Exit: out.Exit, Signal: out.Signal, TimedOut: out.TimedOut,
		WallMS: out.Wall.Milliseconds(), CPUMS: out.Usage.CPU.D().Milliseconds(),
		MemoryPeak: out.Usage.MemoryPeak,
	}
	rs.explain(rs.chats.subject(rec.Record), r, &res, out.Usage.OOMKills)
	res.EndedLeft(out.Left)
	return res
}

// use wakes a chat that a caller reached, if it is asleep.
func (l *life) use(ctx context.Context, c subject, st *admission.Start) (subject, *liveSession, error) {
	l.chats.touch(c.ID) // before it looks at the session: see sleepIdle
	if s := l.chats.session(c.ID); s.lives() {
		return c, s, l.thaw(ctx, c, s, "it is used")
	}
	c, unlock, err := l.chats.lockChat(ctx, c.ID)
	if err != nil {
		return c, nil, err
	}
	defer unlock()
	s, err := l.wakeLocked(ctx, c, st)
	if err == nil {
		err = l.thaw(ctx, c, s, "it is used")
	}
	if err == nil {
		l.chats.touch(c.ID) // the wake may have taken long
	}
	return c, s, err
}

// Attach shows the chat's terminal to an operator, and wakes the chat if it is asleep. A client
// of the chat's tmux runs as the chat, inside, in a fresh terminal that a process of the chat has
// made. Only bytes cross, through pipes. The client is a run, which takes input and new sizes.
// It ends with ctx, by the client's own command, or with the session. A chat's limit of runs
// bounds how many operators may be attached.
//
// The chat controls the bytes that begun is given to read: package termsafe filters them for a
// terminal.
func (rs *runner) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	if err := a.Validate(); err != nil {
		return chat.RunResult{}, err
	}
	rec, err := rs.chats.reach(ctx, id)
	if err == nil {
		err = rs.switchedOff(ctx, rec, chat.ToolTerminal, "attach")
	}
	if err != nil {
		return chat.RunResult{}, err
	}
	st := rs.starts.New()
	rec, s, err := rs.use(ctx, rec, st)
	st.End()
	if err != nil {
		return chat.RunResult{}, err
	}
	spec := chat.RunSpec{Argv: tmux.AttachArgv(plan.Socket, a.ReadOnly), TTY: &a.TTY, OpenStdin: true}
	r, err := rs.admitRun(ctx, rec, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer rs.runs.Forget(r)
	detail := map[string]string{"run": r.Info.ID, "read_only": fmt.Sprint(a.ReadOnly)}
	if err := rs.trail.Write(ctx, rec.Record, "attach", "intent", detail); err != nil {
		return chat.RunResult{}, err
	}
	res, err := rs.attach(ctx, rec, s, r, spec, begun)
	rs.chats.touch(rec.ID)
	return res, rs.trail.Outcome(ctx, rec.Record, "attach", detail, err)
}

func (rs *runner) attach(ctx context.Context, rec subject, s *liveSession, r *background.Run, spec chat.RunSpec, begun func(run string, stdout, stderr *os.File)) (chat.RunResult, error) {
	within, cancel := r.Within(ctx)
	defer cancel()
	go func() { // the client ends with its session, unless the chat has stopped the client
		defer cancel()
		select {
		case <-s.Init.Ended():
		case <-within.Done():
		}
	}()
	e := rs.entry(rec, r, spec)
	e.OpenStdin, e.Started, e.Begun = true, r.Began, begun
	e.Env = append(e.Env, "TERM=xterm-256color") // close enough to the operator's terminal
	ended, err := rs.enter(within, rec, s, e)
	if err == nil && ctx.Err() != nil {
		return chat.RunResult{}, nil // the operator detached: a normal end
	}
	return rs.result(rec, r, ended), err
}

// notEntered returns err for a run that did not start. If a rule closes its directory, the audit
// log and operators get the rule; other callers get the message of a denied path.
func (rs *runner) notEntered(ctx context.Context, b runBegun, err error) error {
	if !errors.Is(err, session.ErrNotConfined) {
		return err
	}
	dir := b.spec.Dir(b.home)
	r := rs.policy.RuleBehind(ctx, b.rules(), dir, rs.inside(ctx, b.subject))
	if rules, rerr := rs.policy.Rules(b.rules()); r != nil && rerr == nil {
		b.detail["rule"], b.detail["place"] = chat.QuotePath(r.String()), chat.QuotePath(r.Place)
		said := rules.Message(*r, dir)
		if chat.CallerFrom(ctx).Role == chat.RoleOperator {
			said = fmt.Sprintf("the file rules close it: %s (%s)", r, r.Place)
		}
		err = fmt.Errorf("%w: %s", err, said)
	}
	return fmt.Errorf("%w: %w", err, chat.ErrInvalid)
}
