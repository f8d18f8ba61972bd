package provision

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/session"
)

// runner has the verbs of runs, and those of file tools, whose calls it does beside sessions.
type runner struct{ *life }

// admitRun makes a run known under an id of its own, or is [chat.ErrBusy].
func (rs *runner) admitRun(ctx context.Context, rec subject, spec chat.RunSpec) (*background.Run, error) {
	met, err := rs.groups.hits(rec.ID)
	if err != nil {
		return nil, err
	}
	by := audit.ScheduleFrom(ctx)
	about := background.About{
		Chat: rec.ID, Owner: rec.Owner, UID: rec.UID, Taken: by.Taken, Refused: met.PidsRefused,
		Grace: cmp.Or(spec.Grace, chat.DefaultGrace).D(),
		Info: chat.Run{
			ID: session.NewRun("run"), State: chat.RunRunning, Background: spec.Background,
			Command:   shownCommand(spec),
			StartedAt: time.Now().UTC(), Timeout: spec.Timeout, TTY: spec.TTY, OutputMax: spec.OutputMax,
			Schedule: by.ID,
		},
	}
	return rs.runs.Admit(about, rs.shares.Run(ctx, rec.Owner))
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

// of finds a run for its caller.
func (rs *runner) of(
	ctx context.Context, id chat.ID, run string,
) (rec subject, r *background.Run, err error) {
	if rec, err = rs.chats.reach(ctx, id); err == nil {
		r, err = rs.runs.Find(id, run)
	}
	return rec, r, err
}

// Runs lists the chat's runs: those under way, and the background runs that are kept.
func (rs *runner) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) {
	if _, err := rs.chats.reach(ctx, id); err != nil {
		return chat.Runs{}, err
	}
	out := chat.Runs{Runs: []chat.Run{}}
	for _, r := range rs.runs.Of(id) {
		out.Runs = append(out.Runs, r.Show())
	}
	return out, nil
}

// OpenRun returns one run and, of a background run, its output in the files that its supervisor
// writes, open for reading and nothing else.
func (rs *runner) OpenRun(ctx context.Context, id chat.ID, run string) (stream.OpenRun, error) {
	_, r, err := rs.of(ctx, id, run)
	if err != nil {
		return stream.OpenRun{}, err
	}
	return r.Open()
}

// AwaitRun returns how a background run ended, once it has.
func (rs *runner) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	_, r, err := rs.of(ctx, id, run)
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
	case <-rs.bg.Done():
		return chat.RunResult{}, fmt.Errorf("cannot wait for run %s: chatd is ending: %w", r.Info.ID,
			chat.ErrBusy)
	}
}

// EndRun ends a run as its timeout does: SIGTERM, its grace, then all of its leaf. It returns when
// nothing of it is left.
func (rs *runner) EndRun(ctx context.Context, id chat.ID, run string) error {
	rec, r, err := rs.of(ctx, id, run)
	if err != nil {
		return err
	}
	return rs.trail.Around(ctx, rec.Record, "end", map[string]string{"run": run}, func() error {
		return r.End(ctx, chat.EndedByRequest)
	})
}

// EndForeground ends every run whose caller waits for it, because chatd ends, and returns how
// many there were.
func (rs *runner) EndForeground() (ended int) { return rs.runs.EndForeground() }

// SignalRun sends a signal to every process of the run, and SIGCONT after it; WINCH sets
// the size of its terminal.
func (rs *runner) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	if err := s.Validate(); err != nil {
		return err
	}
	rec, r, err := rs.of(ctx, id, run)
	if err != nil {
		return err
	}
	detail := map[string]string{"run": run, "signal": s.Name()}
	return rs.trail.Around(ctx, rec.Record, "signal", detail, func() error { return r.Signal(s) })
}

// WriteStdin calls write for the standard input of a run that has it open, and closes it then if
// last is set: see [background.Run.WriteStdin].
func (rs *runner) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool, write func(context.Context, stream.Input) error,
) error {
	rec, r, err := rs.of(ctx, id, run)
	if err != nil {
		return err
	}
	if rs.groups.frozen(rec.ID) == chat.FrozenUntilThawed { // nobody would read it
		return heldError(rec.ID)
	}
	unlock, err := r.LockStdin()
	if err != nil {
		return err
	}
	defer unlock()
	detail := map[string]string{"run": run, "close": fmt.Sprint(last)}
	return rs.trail.Around(ctx, rec.Record, "stdin", detail, func() error {
		defer rs.chats.touch(rec.ID)
		return r.WriteStdin(ctx, last, write)
	})
}
