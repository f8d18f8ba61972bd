package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/background"
	"github.com/chatd/chatd/provision/scheduler"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// StartRun starts a background run and returns once its command is confined. The run goes on
// without its caller and without chatd: see package background. It ends when its command does,
// with its timeout, by [runner.EndRun], and when the chat sleeps or is reaped. An ended run is
// retained for [chat.RunRetention], also while the chat sleeps.
func (rs *runner) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	r, err := rs.start(ctx, id, spec)
	if err != nil {
		return chat.Run{}, err
	}
	return r.Show(), nil
}

func (rs *runner) start(ctx context.Context, id chat.ID, spec chat.RunSpec) (*background.Run, error) {
	spec.Background, spec.OutputMax = true, cmp.Or(spec.OutputMax, chat.DefaultOutputMax)
	b, err := rs.begin(ctx, id, spec)
	if err != nil {
		return nil, &scheduler.NotBegun{Err: err}
	}
	if err := rs.startBackground(context.WithoutCancel(ctx), b); err != nil {
		rs.runs.Forget(b.r)
		err = rs.notEntered(ctx, b, err)
		return nil, rs.trail.Outcome(ctx, b.Record, "run", b.detail, err)
	}
	rs.chats.touch(id)
	return b.r, nil
}

func (rs *runner) startBackground(ctx context.Context, b runBegun) error {
	leave, err := rs.letIn(ctx, b.subject, b.s) // once it has begun the run is under way: see atWork
	if err != nil {
		return err
	}
	defer leave()
	var files session.Files
	defer files.Close()
	e := rs.behindWalls(b.subject, b.s, rs.entry(b))
	nsenter, err := rs.starter.Joining(b.s.Session, e, &files)
	if err != nil {
		return err
	}
	if err := b.r.Start(ctx, b.spec, nsenter, &files); err != nil {
		return err
	}
	rs.done.Go(func() { rs.watchRun(ctx, b.Record, b.r) })
	return nil
}

// watchRun waits for the end of a background run and records it. When chatd ends first the run
// goes on.
func (rs *runner) watchRun(ctx context.Context, rec state.Record, r *background.Run) {
	e, over, err := r.Watch(rs.bg)
	if !over {
		return
	}
	rs.explain(rs.chats.subject(rec), r, &e.Result, e.OOMKills)
	rs.store.Touch(rec.ID, e.At)
	e, kerr := r.Keep(e)
	detail := map[string]string{
		"run": r.Info.ID, "state": string(e.State),
		"exit": fmt.Sprint(e.Result.Exit), "signal": e.Result.Signal,
	}
	if e.Result.EndedBy != "" {
		detail["ended_by"] = string(e.Result.EndedBy)
	}
	rs.trail.Note(ctx, rec, "run", detail, errors.Join(err, kerr))
	for _, old := range rs.runs.Surplus(rec.ID) {
		rs.drop(old)
	}
	rs.forgetLater(r, e.At)
}

// explain says in a result what ended the run, which limits it met, and what the chat was refused.
func (rs *runner) explain(c subject, r *background.Run, res *chat.RunResult, kills uint64) {
	now, err := rs.groups.hits(c.ID)
	if err != nil {
		rs.log.Error("cannot look at the limits of a chat", "chat", c.ID, "error", err)
	}
	by := r.EndedBy()
	if s := rs.chats.session(c.ID); by == "" && res.Signal == "SIGKILL" && kills == 0 && !res.TimedOut &&
		(s == nil || s.Init.Ending()) {
		by = chat.EndedBySession
	}
	met := chat.LimitHits{OOMKills: kills,
		PidsRefused: now.Since(chat.LimitHits{PidsRefused: r.Refused}).PidsRefused}
	res.Denied = rs.denied(c, r)
	res.Explain(by, r.Info.Timeout, met, c.profile.Limits)
	if len(res.Why) > 0 {
		rs.log.Info("a run was ended or met a limit", "chat", c.ID, "run", r.Info.ID, "why",
			strings.Join(res.Why, "; "))
	}
}

// forgetLater forgets a run that has ended when its time is over, if chatd is still there then;
// one that comes later does.
func (rs *runner) forgetLater(r *background.Run, ended time.Time) {
	// The clock may have been set back since.
	left := min(chat.RunRetention, time.Until(ended.Add(chat.RunRetention)))
	time.AfterFunc(left, func() {
		if rs.bg.Err() == nil {
			rs.drop(r)
		}
	})
}

func (rs *runner) drop(r *background.Run) { rs.trail.Report("the run "+r.Info.ID, rs.runs.Drop(r)) }

// adoptRuns finds the runs of an earlier chatd. Background runs go on, or have ended meanwhile. It
// ends everything else in the leaf of a run. An error becomes a finding.
func (rs *runner) adoptRuns(ctx context.Context) error {
	var errs []error
	for _, rec := range rs.store.All() {
		runs, err := rs.runs.Adopt(ctx, rec.ID, rec.Owner, rec.UID)
		errs = append(errs, err)
		for _, r := range runs {
			ctx := context.WithoutCancel(audit.WithSchedule(ctx,
				audit.Schedule{ID: r.Info.Schedule, Taken: r.Taken}))
			switch {
			case r.IsOver():
				rs.forgetLater(r, *r.Show().EndedAt)
			case r.Supervised():
				rs.done.Go(func() { rs.watchRun(ctx, rec, r) })
			default: // it has ended
				rs.watchRun(ctx, rec, r)
			}
		}
	}
	others := rs.runs.RemoveOthers(func(id chat.ID) bool {
		_, err := rs.store.Get(id)
		return !errors.Is(err, chat.ErrNotFound)
	})
	rs.trail.Report("background runs", errors.Join(append(errs, others)...))
	return nil
}

// denied returns what the chat was refused during a run, as its enforcer and chatd-egress know by
// now, or in a moment.
func (rs *runner) denied(rec subject, r *background.Run) []chat.Denied {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	rs.policy.TakeRefused(ctx, rec.rules())
	rs.gateway.Connections(ctx, rec.ID) // before it answers it tells what it refused
	return r.Denied()
}
