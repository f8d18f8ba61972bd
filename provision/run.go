package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/tmux"
)

// Run runs one command in the chat, beside its terminal and behind the same
// walls, and returns when it and everything it started has ended. A chat that is
// asleep is woken first.
func (m *Manager) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error) {
	if err := spec.Validate(); err != nil {
		return chat.RunResult{}, err
	}
	rec, s, err := m.use(ctx, id)
	if err != nil {
		return chat.RunResult{}, err
	}
	run := m.newRun("run")
	detail := map[string]string{"run": run, "argv": chat.Quote(fmt.Sprint(runArgv(spec)))}
	if err := m.audit(ctx, rec, "run", "intent", detail); err != nil {
		return chat.RunResult{}, err
	}
	timeout := spec.Timeout
	if timeout == 0 {
		timeout = chat.DefaultTimeout
	}
	runCtx, cancel := context.WithTimeout(ctx, timeout.D())
	defer cancel()
	out, err := m.enter(runCtx, rec, s, entry{
		run: run, argv: runArgv(spec), env: runEnv(spec), dir: spec.Dir(m.home(id)), stdin: []byte(spec.Stdin),
	})
	if errors.Is(err, errNotConfined) {
		err = fmt.Errorf("%w: %w", err, chat.ErrInvalid)
	}
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("cannot finish the run: the caller went away: %w", context.Cause(ctx))
	}
	m.touch(rec)
	return runResult(out), errors.Join(err, m.auditOutcome(ctx, rec, "run", detail, err))
}

// runArgv is the command line of a run. A shell command goes to sh as one
// argument; nothing of it is ever parsed here.
func runArgv(spec chat.RunSpec) []string {
	if spec.Command != "" {
		return []string{"/bin/sh", "-c", spec.Command}
	}
	return spec.Argv
}

func runEnv(spec chat.RunSpec) []string {
	var env []string
	for _, k := range slices.Sorted(maps.Keys(spec.Env)) {
		env = append(env, k+"="+spec.Env[k])
	}
	return env
}

func runResult(out entered) chat.RunResult {
	return chat.RunResult{
		Exit: out.exit, Signal: out.signal, TimedOut: out.timedOut, OOMKilled: out.usage.OOMKills > 0,
		Stdout: out.stdout.text(), Stderr: out.stderr.text(),
		Truncated: out.stdout.truncated() || out.stderr.truncated(),
		WallMS:    out.wall.Milliseconds(), CPUMS: out.usage.CPU.D().Milliseconds(), MemoryPeak: out.usage.MemoryPeak,
	}
}

// Input types text or presses keys in the chat's terminal, and wakes the chat
// if it is asleep.
func (m *Manager) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	if err := in.Validate(); err != nil {
		return err
	}
	for _, k := range in.Keys {
		if !tmux.KnownKey(k) {
			return fmt.Errorf("cannot press %s: want names of tmux(1) as in C-c, M-x, Up, Enter, F1: %w", chat.Quote(k), chat.ErrInvalid)
		}
	}
	rec, s, err := m.use(ctx, id)
	if err != nil {
		return err
	}
	detail := map[string]string{"bytes": fmt.Sprint(len(in.Text)), "keys": fmt.Sprint(len(in.Keys))}
	if err := m.audit(ctx, rec, "input", "intent", detail); err != nil {
		return err
	}
	if len(in.Keys) > 0 {
		err = s.terminal.Press(ctx, in.Keys)
	} else {
		err = s.terminal.Type(ctx, in.Text, in.Enter)
	}
	m.touch(rec)
	return errors.Join(err, m.auditOutcome(ctx, rec, "input", detail, err))
}

// Screen reads what the terminal shows. It wakes nobody: a chat that is asleep
// has no screen, which is [chat.ErrWrongPhase].
func (m *Manager) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Screen{}, err
	}
	s := m.session(rec.ID)
	if s == nil {
		return chat.Screen{}, fmt.Errorf("cannot read the screen of chat %s: it is asleep: %w", id, chat.ErrWrongPhase)
	}
	sc, err := s.terminal.Screen(ctx)
	if err != nil {
		return chat.Screen{}, err
	}
	return chat.Screen{Rows: sc.Rows, Cols: sc.Cols, CursorRow: sc.CursorRow, CursorCol: sc.CursorCol, Text: sc.Text}, nil
}

// use finds a chat for its caller and makes sure that it is awake.
func (m *Manager) use(ctx context.Context, id chat.ID) (state.Record, *session, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	if s := m.session(id); s != nil && s.leader.alive() {
		return rec, s, nil
	}
	unlock, err := m.locks.lock(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	defer unlock()
	return m.wakeLocked(ctx, id)
}

func (m *Manager) touch(rec state.Record) { m.store.Touch(rec.ID, time.Now()) }
