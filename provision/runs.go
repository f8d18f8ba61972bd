package provision

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// admitRun makes a run known under an id of its own, or is [chat.ErrBusy].
func (m *Manager) admitRun(ctx context.Context, rec state.Record, spec chat.RunSpec) (*background.Run, error) {
	met, err := m.hits(rec.ID)
	if err != nil {
		return nil, err
	}
	by := scheduleFrom(ctx)
	about := background.About{
		Chat: rec.ID, Owner: rec.Owner, UID: rec.UID, Taken: by.taken, Refused: met.PidsRefused,
		Grace: cmp.Or(spec.Grace, chat.DefaultGrace).D(),
		Info: chat.Run{
			ID: session.NewRun("run"), State: chat.RunRunning, Background: spec.Background, Command: shownCommand(spec),
			StartedAt: time.Now().UTC(), Timeout: spec.Timeout, TTY: spec.TTY, OutputMax: spec.OutputMax,
			Schedule: by.schedule,
		},
	}
	return m.runs.Admit(about, m.shares.Run(ctx, rec.Owner))
}

// shownCommand is the command for lists of runs, cut but otherwise as given. Code that shows it on
// a terminal escapes it.
func shownCommand(spec chat.RunSpec) string {
	text := cmp.Or(spec.Command, strings.Join(spec.Argv, " "))
	if len(text) <= maxShownCommand {
		return text
	}
	cut := text[:maxShownCommand]
	return cut[:chat.WholeRunes([]byte(cut))] + "…"
}

// maxShownCommand is in bytes.
const maxShownCommand = 256

// runDetail is what the audit log has of a run that begins.
func runDetail(r *background.Run) map[string]string {
	d := map[string]string{"run": r.Info.ID}
	if r.Info.Background {
		d["background"] = "true"
	}
	return d
}

// runOf finds a run for its caller.
func (m *Manager) runOf(ctx context.Context, id chat.ID, run string) (rec state.Record, r *background.Run, err error) {
	if rec, err = m.reach(ctx, id); err == nil {
		r, err = m.runs.Find(id, run)
	}
	return rec, r, err
}

// Runs lists the chat's runs: those under way, and the background runs that are kept.
func (m *Manager) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) {
	if _, err := m.reach(ctx, id); err != nil {
		return chat.Runs{}, err
	}
	out := chat.Runs{Runs: []chat.Run{}}
	for _, r := range m.runs.Of(id) {
		out.Runs = append(out.Runs, r.Show())
	}
	return out, nil
}

// OpenRun returns one run and, of a background run, its output in the files that its supervisor
// writes, open for reading and nothing else.
func (m *Manager) OpenRun(ctx context.Context, id chat.ID, run string) (stream.OpenRun, error) {
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return stream.OpenRun{}, err
	}
	return r.Open()
}

// AwaitRun returns how a background run ended, once it has.
func (m *Manager) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	_, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return chat.RunResult{}, err
	}
	if !r.Info.Background {
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: who started it does: %w",
			r.Info.ID, chat.ErrWrongPhase)
	}
	select {
	case <-r.Over():
		e, err := r.Ended()
		return e.Result, err
	case <-ctx.Done():
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: %w", r.Info.ID, context.Cause(ctx))
	case <-m.bg.Done():
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: chatd is ending: %w", r.Info.ID, chat.ErrBusy)
	}
}

// EndRun ends a run as its timeout does: SIGTERM, its grace, then all of its leaf. It returns when
// nothing of it is left.
func (m *Manager) EndRun(ctx context.Context, id chat.ID, run string) error {
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	return m.audited(ctx, rec, "end", map[string]string{"run": run}, func() error {
		return r.End(ctx, chat.EndedByRequest)
	})
}

// EndForeground ends every run whose caller waits for it, because chatd ends, and returns how
// many there were.
func (m *Manager) EndForeground() (ended int) { return m.runs.EndForeground() }

// SignalRun sends a signal to every process of the run, and SIGCONT after it; WINCH sets
// the size of its terminal.
func (m *Manager) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	if err := s.Validate(); err != nil {
		return err
	}
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	detail := map[string]string{"run": run, "signal": s.Name()}
	return m.audited(ctx, rec, "signal", detail, func() error { return r.Signal(s) })
}

// WriteStdin calls write for the standard input of a run that has it open, and closes it then if
// last is set: see [background.Run.WriteStdin].
func (m *Manager) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool,
	write func(context.Context, stream.Input) error,
) error {
	rec, r, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	if m.frozen(rec.ID) == chat.FrozenUntilThawed { // nobody would read it
		return heldError(rec.ID)
	}
	unlock, err := r.LockStdin()
	if err != nil {
		return err
	}
	defer unlock()
	detail := map[string]string{"run": run, "close": fmt.Sprint(last)}
	return m.audited(ctx, rec, "stdin", detail, func() error {
		defer m.touch(rec)
		return r.WriteStdin(ctx, last, write)
	})
}
