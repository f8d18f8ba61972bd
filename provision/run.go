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

// Begun gets the id and the streams of a run that has started.
type Begun = func(run string, stdout, stderr *os.File)

// Run runs one command in the chat, beside its terminal and behind the same
// walls, and returns when it and everything it started has ended. A chat that is
// asleep is woken first. The command's streams are given away, with nothing of them left here, and
// the result has no output. A command whose streams nobody reads any more ends by SIGPIPE, or is
// blocked until its timeout.
func (rs *runner) Run(ctx context.Context, id chat.ID, spec chat.RunSpec, to Begun) (chat.RunResult, error) {
	b, err := rs.begin(ctx, id, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer rs.runs.Forget(b.r)
	within, cancel := context.WithDeadline(ctx, b.r.Info.StartedAt.Add(b.r.Info.Timeout.D()))
	defer cancel()
	ended, err := rs.inSession(within, b, to)
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

// inSession does the command of a run in the session, until ctx or the run ends.
func (rs *runner) inSession(ctx context.Context, b runBegun, begun Begun) (session.CommandResult, error) {
	ctx, stop := b.r.Within(ctx)
	defer stop()
	e := rs.entry(b)
	e.Stdin, e.OpenStdin = []byte(b.spec.Stdin), b.spec.StdinStaysOpen()
	e.Started, e.Begun = b.r.Began, begun
	return rs.enter(ctx, b.subject, b.s, e)
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
	b.spec, b.spec.Timeout = spec, chat.Duration(timeout)
	if b.r, err = rs.admitRun(ctx, b.subject, b.spec); err != nil {
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
func (rs *runner) entry(b runBegun) session.Entry {
	argv := b.spec.CommandLine()
	if b.spec.TTY != nil {
		argv = plan.PTYArgv(*b.spec.TTY, argv)
	}
	return session.Entry{Run: b.r.Info.ID, Grace: b.r.Grace, Argv: argv, Env: chat.EnvLines(b.spec.Env),
		Dir: b.spec.Dir(b.home)}
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
	s, err := l.wakeToUse(ctx, c, st, "it is used")
	return c, s, err
}

// Attach shows the chat's terminal to an operator, and wakes the chat if it is asleep. A client
// of the chat's tmux runs as the chat, inside, in a fresh terminal that a process of the chat has
// made. Only bytes cross, through pipes. The client is a run, which takes input and new sizes.
// It ends with ctx, by the client's own command, or with the session. A chat's limit of runs
// bounds how many operators may be attached.
//
// The chat controls the bytes that are given to read: package termsafe filters them for a
// terminal.
func (rs *runner) Attach(ctx context.Context, id chat.ID, a chat.Attach, to Begun) (chat.RunResult, error) {
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
	// TERM is close enough to the operator's terminal.
	b := runBegun{spec: chat.RunSpec{Argv: tmux.AttachArgv(plan.Socket, a.ReadOnly), TTY: &a.TTY,
		OpenStdin: true, Env: map[string]string{"TERM": "xterm-256color"}}}
	st := rs.starts.New()
	b.subject, b.s, err = rs.use(ctx, rec, st)
	st.End()
	if err != nil {
		return chat.RunResult{}, err
	}
	if b.r, err = rs.admitRun(ctx, b.subject, b.spec); err != nil {
		return chat.RunResult{}, err
	}
	defer rs.runs.Forget(b.r)
	detail := map[string]string{"run": b.r.Info.ID, "read_only": fmt.Sprint(a.ReadOnly)}
	if err := rs.trail.Write(ctx, b.Record, "attach", "intent", detail); err != nil {
		return chat.RunResult{}, err
	}
	res, err := rs.attach(ctx, b, to)
	rs.chats.touch(id)
	return res, rs.trail.Outcome(ctx, b.Record, "attach", detail, err)
}

func (rs *runner) attach(ctx context.Context, b runBegun, begun Begun) (chat.RunResult, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the client ends with its session, unless the chat has stopped the client
		defer cancel()
		select {
		case <-b.s.Init.Ended():
		case <-within.Done():
		}
	}()
	ended, err := rs.inSession(within, b, begun)
	if err == nil && ctx.Err() != nil {
		return chat.RunResult{}, nil // the operator detached: a normal end
	}
	return rs.result(b.subject, b.r, ended), err
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
	return chat.Invalid("%w", err)
}
