package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/due"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// StartRun starts a background run and returns once its command is confined. The run goes on
// without its caller and without chatd: see package background. It ends when its command does,
// with its timeout, by [Manager.EndRun], and when the chat sleeps or is reaped. An ended run is
// retained for [chat.RunRetention], also while the chat sleeps.
func (m *Manager) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	r, err := m.startRun(ctx, id, spec)
	if err != nil {
		return chat.Run{}, err
	}
	return r.Show(), nil
}

func (m *Manager) startRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (*background.Run, error) {
	spec.Background, spec.OutputMax = true, cmp.Or(spec.OutputMax, chat.DefaultOutputMax)
	rec, s, r, err := m.newRunOf(ctx, id, spec)
	if err != nil {
		return nil, &due.NotBegun{Err: err}
	}
	detail := runDetail(r)
	if err := m.auditArgv(ctx, rec, "run", "intent", spec.CommandLine(), detail); err != nil {
		m.runs.Forget(r)
		return nil, &due.NotBegun{Err: err}
	}
	if err := m.startBackground(context.WithoutCancel(ctx), rec, s, r, spec); err != nil {
		m.runs.Forget(r)
		err = m.notEntered(ctx, rec, spec, detail, err)
		return nil, m.auditOutcome(ctx, rec, "run", detail, err)
	}
	m.touch(rec)
	return r, nil
}

func (m *Manager) startBackground(ctx context.Context, rec state.Record, s *liveSession, r *background.Run, spec chat.RunSpec) error {
	leave, err := m.letIn(ctx, rec, s) // once it has begun the run is under way: see atWork
	if err != nil {
		return err
	}
	defer leave()
	var b session.Files
	defer b.Close()
	e := m.behindWalls(rec, s, m.runEntry(rec, r, spec))
	nsenter, err := m.starter.Joining(s.Session, e, &b)
	if err != nil {
		return err
	}
	if err := r.Start(ctx, spec, nsenter, &b); err != nil {
		return err
	}
	m.done.Go(func() { m.watchRun(ctx, rec, r) })
	return nil
}

// watchRun waits for the end of a background run and records it. When chatd ends first the run
// goes on.
func (m *Manager) watchRun(ctx context.Context, rec state.Record, r *background.Run) {
	e, over, err := r.Watch(m.bg)
	if !over {
		return
	}
	m.explain(rec, r, &e.Result, e.OOMKills)
	m.store.Touch(rec.ID, e.At)
	e, kerr := r.Keep(e)
	detail := map[string]string{
		"run": r.Info.ID, "state": string(e.State),
		"exit": fmt.Sprint(e.Result.Exit), "signal": e.Result.Signal,
	}
	if e.Result.EndedBy != "" {
		detail["ended_by"] = string(e.Result.EndedBy)
	}
	if err := m.auditEnd(ctx, rec, "run", detail, errors.Join(err, kerr)); err != nil {
		m.log.Error("cannot audit the end of a run", "chat", rec.ID, "run", r.Info.ID, "err", err)
	}
	for _, old := range m.runs.Surplus(rec.ID) {
		m.dropRun(old)
	}
	m.forgetLater(r, e.At)
}

// explain says in a result what ended the run, which limits it met, and what the chat was refused.
func (m *Manager) explain(rec state.Record, r *background.Run, res *chat.RunResult, kills uint64) {
	now, err := m.hits(rec.ID)
	if err != nil {
		m.log.Error("cannot look at the limits of a chat", "chat", rec.ID, "error", err)
	}
	by := r.EndedBy()
	if s := m.session(rec.ID); by == "" && res.Signal == "SIGKILL" && kills == 0 && !res.TimedOut && (s == nil || s.Init.Ending()) {
		by = chat.EndedBySession
	}
	met := chat.LimitHits{OOMKills: kills, PidsRefused: now.Since(chat.LimitHits{PidsRefused: r.Refused}).PidsRefused}
	res.Denied = m.denied(rec, r)
	res.Explain(by, r.Info.Timeout, met, m.profile(rec).Limits)
	if len(res.Why) > 0 {
		m.log.Info("a run was ended or met a limit", "chat", rec.ID, "run", r.Info.ID, "why", strings.Join(res.Why, "; "))
	}
}

// forgetLater forgets a run that has ended when its time is over, if chatd is still there then;
// one that comes later does.
func (m *Manager) forgetLater(r *background.Run, ended time.Time) {
	// The clock may have been set back since.
	left := min(chat.RunRetention, time.Until(ended.Add(chat.RunRetention)))
	time.AfterFunc(left, func() {
		if m.bg.Err() == nil {
			m.dropRun(r)
		}
	})
}

func (m *Manager) dropRun(r *background.Run) { m.report("the run "+r.Info.ID, m.runs.Drop(r)) }

// adoptRuns finds the runs of an earlier chatd. Background runs go on, or have ended meanwhile. It
// ends everything else in the leaf of a run.
func (m *Manager) adoptRuns(ctx context.Context) error {
	var errs []error
	for _, rec := range m.store.All() {
		runs, err := m.runs.Adopt(ctx, rec.ID, rec.Owner, rec.UID)
		errs = append(errs, err)
		for _, r := range runs {
			ctx := context.WithoutCancel(asSchedule(ctx, byClock{r.Info.Schedule, r.Taken}))
			switch {
			case r.IsOver():
				m.forgetLater(r, *r.Show().EndedAt)
			case r.Supervised():
				m.done.Go(func() { m.watchRun(ctx, rec, r) })
			default: // it has ended
				m.watchRun(ctx, rec, r)
			}
		}
	}
	others := m.runs.RemoveOthers(func(id chat.ID) bool {
		_, err := m.store.Get(id)
		return !errors.Is(err, chat.ErrNotFound)
	})
	return errors.Join(append(errs, others)...)
}

// removeRuns is the runs' part in a reap. Nobody is inside any more, and their supervisors end
// before their files go.
func (m *Manager) removeRuns(ctx context.Context, rec state.Record) error {
	return m.runs.Remove(ctx, rec.ID)
}
