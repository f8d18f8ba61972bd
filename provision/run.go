package provision

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// Run runs one command in the chat, beside its terminal and behind the same
// walls, and returns when it and everything it started has ended. A chat that is
// asleep is woken first. The command's streams go to begun, with nothing of them left here, and
// the result has no output. A command whose streams nobody reads any more ends by SIGPIPE, or is
// blocked until its timeout.
func (m *Manager) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec, begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	rec, s, r, err := m.newRunOf(ctx, id, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer m.runs.Forget(r)
	detail := runDetail(r)
	if err := m.auditArgv(ctx, rec, "run", "intent", spec.CommandLine(), detail); err != nil {
		return chat.RunResult{}, err
	}
	runCtx, cancel := context.WithDeadline(ctx, r.Info.StartedAt.Add(r.Info.Timeout.D()))
	defer cancel()
	runCtx, stop := r.Within(runCtx)
	defer stop()
	e := m.runEntry(rec, r, spec)
	e.Stdin, e.OpenStdin = []byte(spec.Stdin), spec.StdinStaysOpen()
	e.Started, e.Begun = r.Began, begun
	ended, err := m.enter(runCtx, rec, s, e)
	err = m.notEntered(ctx, rec, spec, detail, err)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot finish the run: the caller went away: %w", context.Cause(ctx))
	}
	m.touch(rec)
	res := m.runResult(rec, r, ended)
	if res.EndedBy != "" {
		detail["ended_by"] = string(res.EndedBy)
	}
	return res, m.auditOutcome(ctx, rec, "run", detail, err)
}

// newRunOf checks everything for which a run may be refused before it starts anything, wakes
// the chat, and registers the run.
func (m *Manager) newRunOf(ctx context.Context, id chat.ID, spec chat.RunSpec) (rec state.Record, s *liveSession, r *background.Run, err error) {
	if err := spec.Validate(); err != nil {
		return rec, nil, nil, err
	}
	if rec, err = m.reach(ctx, id); err == nil {
		err = m.checkRun(ctx, rec, spec)
	}
	if err != nil {
		return rec, nil, nil, err
	}
	timeout, err := m.profile(rec).RunTimeout(spec.Timeout, chat.DefaultTimeout)
	if err != nil {
		return rec, nil, nil, err
	}
	if err := m.mayBegin(ctx); err != nil {
		return rec, nil, nil, err
	}
	if rec, s, err = m.use(ctx, id); err != nil {
		return rec, nil, nil, err
	}
	m.freshPrograms()
	spec.Timeout = chat.Duration(timeout)
	r, err = m.admitRun(ctx, rec, spec)
	return rec, s, r, m.shares.Refused(ctx, "run", err)
}

// runEntry returns the entry of a run's command into the session.
func (m *Manager) runEntry(rec state.Record, r *background.Run, spec chat.RunSpec) session.Entry {
	e := session.Entry{Run: r.Info.ID, Grace: r.Grace, Argv: spec.CommandLine(), Env: chat.EnvLines(spec.Env), Dir: spec.Dir(m.home(rec.ID))}
	if spec.TTY != nil {
		e.Argv = plan.PTYArgv(*spec.TTY, e.Argv)
	}
	return e
}

func (m *Manager) runResult(rec state.Record, r *background.Run, out session.CommandResult) chat.RunResult {
	res := chat.RunResult{
		Exit: out.Exit, Signal: out.Signal, TimedOut: out.TimedOut,
		WallMS: out.Wall.Milliseconds(), CPUMS: out.Usage.CPU.D().Milliseconds(), MemoryPeak: out.Usage.MemoryPeak,
	}
	m.explain(rec, r, &res, out.Usage.OOMKills)
	res.EndedLeft(out.Left)
	return res
}

// Screen reads the terminal's screen. It does not wake the chat: one that is asleep has no
// screen, which is [chat.ErrWrongPhase].
func (m *Manager) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return m.ScreenWith(ctx, id, chat.ScreenSpec{})
}

// screenForms are the forms of a screen, by whether its styles are asked for.
var screenForms = map[bool]tmux.Form{false: tmux.Plain, true: tmux.Styled}

// ScreenWith is Screen with styles and history as in spec. With styles the text has any escape
// sequences that the chat's tmux sends: package front makes it safe.
func (m *Manager) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	if err := spec.Validate(); err != nil {
		return chat.Screen{}, err
	}
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Screen{}, err
	}
	s := m.session(rec.ID)
	if s == nil {
		return chat.Screen{}, noScreen(id, fmt.Errorf("it is asleep: %w", chat.ErrWrongPhase))
	}
	switch m.frozen(rec.ID) { // its tmux would not answer, and to look is no use
	case chat.FrozenUntilThawed:
		return chat.Screen{}, noScreen(id, heldError(id))
	case chat.FrozenUntilUsed:
		return chat.Screen{}, noScreen(id, fmt.Errorf("it is frozen until it is used: %w",
			chat.ErrWrongPhase))
	}
	sc, err := s.terminal.Screen(ctx, screenForms[spec.Styles], spec.History)
	if err != nil {
		return chat.Screen{}, err
	}
	return chat.Screen{Rows: sc.Rows, Cols: sc.Cols, CursorRow: sc.CursorRow, CursorCol: sc.CursorCol, History: sc.History, Program: strings.ToValidUTF8(sc.Program, "\uFFFD"), Text: sc.Text}, nil
}

func noScreen(id chat.ID, why error) error {
	return fmt.Errorf("cannot read the screen of chat %s (chatd log --text has what it printed): %w",
		id, why)
}

// use finds a chat for its caller, and wakes it if it is asleep.
func (m *Manager) use(ctx context.Context, id chat.ID) (state.Record, *liveSession, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	m.touch(rec) // before it looks at the session: see sleepIdle
	if s := m.session(id); s.lives() {
		return rec, s, m.thaw(ctx, rec, s, "it is used")
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	defer unlock()
	rec, s, err := m.wakeLocked(ctx, id)
	if err == nil {
		err = m.thaw(ctx, rec, s, "it is used")
	}
	if err == nil {
		m.touch(rec) // the wake may have taken long
	}
	return rec, s, err
}
