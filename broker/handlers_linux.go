package broker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/stream"
)

// handler does one call, and returns its answer.
type handler func(ctx context.Context, m Root, c *call) (any, error)

// taking is a handler that reads its arguments first.
func taking[A any](do func(ctx context.Context, m Root, c *call, a A) (any, error)) handler {
	return func(ctx context.Context, m Root, c *call) (any, error) {
		var a A
		if err := decode(c.Args, &a); err != nil {
			return nil, err
		}
		return do(ctx, m, c, a)
	}
}

// of is the handler of a method that takes a chat and one argument.
func of[A, R any](method func(m Root, ctx context.Context, id chat.ID, a A) (R, error)) handler {
	return taking(func(ctx context.Context, m Root, c *call, a A) (any, error) { return method(m, ctx, c.Chat, a) })
}

// plain is the handler of a method that takes a chat alone.
func plain[R any](method func(m Root, ctx context.Context, id chat.ID) (R, error)) handler {
	return taking(func(ctx context.Context, m Root, c *call, _ nothing) (any, error) { return method(m, ctx, c.Chat) })
}

// whole is the handler of a method about no chat.
func whole[R any](method func(m Root, ctx context.Context) (R, error)) handler {
	return taking(func(ctx context.Context, m Root, _ *call, _ nothing) (any, error) { return method(m, ctx) })
}

// doing is the handler of a method without a result.
func doing[A any](method func(m Root, ctx context.Context, id chat.ID, a A) error) handler {
	return taking(func(ctx context.Context, m Root, c *call, a A) (any, error) {
		return nothing{}, method(m, ctx, c.Chat, a)
	})
}

// handlers are the verbs.
var handlers = map[string]handler{
	"create": taking(func(ctx context.Context, m Root, _ *call, a chat.Spec) (any, error) {
		made, is, err := m.Create(ctx, a)
		return created{made, is}, err
	}),
	"list":  taking(func(ctx context.Context, m Root, _ *call, f chat.Filter) (any, error) { return m.List(ctx, f) }),
	"get":   plain(Root.Get),
	"patch": of(Root.Patch),
	"reap": taking(func(ctx context.Context, m Root, c *call, _ nothing) (any, error) {
		return nothing{}, m.Reap(ctx, c.Chat)
	}),
	"wake":  plain(Root.Wake),
	"sleep": plain(Root.Sleep),
	"run": taking(func(ctx context.Context, m Root, c *call, a namedRun) (any, error) {
		return m.Run(ctx, c.Chat, a.spec(), c.streams)
	}),
	"start_run": taking(func(ctx context.Context, m Root, c *call, a namedRun) (any, error) {
		return m.StartRun(ctx, c.Chat, a.spec())
	}),
	"terms":      plain(Root.Terms),
	"refuse_run": doing(Root.RefuseRun),
	"runs":       plain(Root.Runs),
	"open_run":   taking(openRun),
	"await_run": taking(func(ctx context.Context, m Root, c *call, a inRun) (any, error) {
		return m.AwaitRun(ctx, c.Chat, a.Run)
	}),
	"end_run": taking(func(ctx context.Context, m Root, c *call, a inRun) (any, error) {
		return nothing{}, m.EndRun(ctx, c.Chat, a.Run)
	}),
	"signal_run": taking(signalRun),
	"write_stdin": taking(func(ctx context.Context, m Root, c *call, a inRun) (any, error) {
		return nothing{}, m.WriteStdin(ctx, c.Chat, a.Run, a.Last, c.writes(a.Run))
	}),
	"put_schedule":    of(Root.PutSchedule),
	"kept_schedules":  taking(keptSchedules),
	"kept_schedule":   of(Root.KeptSchedule),
	"begin_due":       due(Root.BeginDue),
	"await_due":       due(awaitDue),
	"add_skipped":     due(addSkipped),
	"schedules":       plain(Root.Schedules),
	"schedule":        of(Root.Schedule),
	"remove_schedule": doing(Root.RemoveSchedule),
	"input":           doing(Root.Input),
	"input_wait":      taking(inputWait),
	"screen":          of(Root.ScreenWith),
	"attach": taking(func(ctx context.Context, m Root, c *call, a chat.Attach) (any, error) {
		return m.Attach(ctx, c.Chat, a, c.streams)
	}),
	"log": taking(func(ctx context.Context, m Root, c *call, a since) (any, error) {
		return m.Log(ctx, c.Chat, a.Since)
	}),
	"follow_log": taking(func(ctx context.Context, m Root, c *call, a since) (any, error) {
		return nothing{}, m.FollowLog(ctx, c.Chat, a.Since, func(l chat.Log) error { return c.frame(l) })
	}),
	"file_tool": taking(func(ctx context.Context, m Root, c *call, u files.Use) (any, error) {
		return nothing{}, m.FileTool(ctx, c.Chat, u, c.talk)
	}),
	"explain": taking(func(ctx context.Context, m Root, c *call, a namedQuestion) (any, error) {
		return m.Explain(ctx, c.Chat, a.question())
	}),
	"share": taking(func(ctx context.Context, m Root, c *call, a chat.Share) (any, error) {
		return nothing{}, m.ShareFile(ctx, c.Chat, a, c.talk)
	}),
	"plan":   plain(Root.Plan),
	"host":   whole(Root.Host),
	"status": whole(Root.Status),
}

func inputWait(ctx context.Context, m Root, c *call, in chat.Input) (any, error) {
	t, err := m.InputWait(ctx, c.Chat, in)
	return typed{t, t.Output}, err
}

// due is the handler of a method about a time that has come; its argument names the chat.
func due[R any](method func(m Root, ctx context.Context, d chat.DueSchedule) (R, error)) handler {
	return taking(func(ctx context.Context, m Root, _ *call, d chat.DueSchedule) (any, error) {
		if _, err := chat.ParseID(string(d.Chat)); err != nil {
			return nil, err
		}
		return method(m, ctx, d)
	})
}

func awaitDue(m Root, ctx context.Context, d chat.DueSchedule) (nothing, error) {
	return nothing{}, m.AwaitDue(ctx, d)
}

func addSkipped(m Root, ctx context.Context, d chat.DueSchedule) (nothing, error) {
	return nothing{}, m.AddSkipped(ctx, d)
}

func keptSchedules(ctx context.Context, m Root, c *call, _ nothing) (any, error) {
	return nothing{}, m.KeptSchedules(ctx, func(k chat.StoredSchedule) error { return c.frame(k) })
}

func signalRun(ctx context.Context, m Root, c *call, a inRun) (any, error) {
	if a.Signal == nil {
		return nil, fmt.Errorf("cannot send no signal: %w", chat.ErrInvalid)
	}
	return nothing{}, m.SignalRun(ctx, c.Chat, a.Run, *a.Signal)
}

// The streams of a call. A front that is gone is seen by watch, which cancels the call.

// streams gives the front the streams of a run. Nothing of them stays here: without a front they
// end.
func (c *call) streams(run string, stdout, stderr *os.File) {
	_ = errors.Join(c.tellFiles(streams, []byte(run), stdout, stderr), stdout.Close(), stderr.Close())
}

func openRun(ctx context.Context, m Root, c *call, a inRun) (any, error) {
	o, err := m.OpenRun(ctx, c.Chat, a.Run)
	if err != nil {
		return nil, err
	}
	if o.Stdout != nil {
		err = c.tellFiles(streams, []byte(a.Run), o.Stdout, o.Stderr)
	}
	return opened{o.Run, o.Max}, errors.Join(err, o.Close())
}

// writes has the front write to a run, and returns once the front says that it is done. Nothing
// says that it is: a front may keep its descriptor, and write on, for as long as the run reads.
func (c *call) writes(run string) Writes {
	return func(ctx context.Context, to stream.Input) error {
		k := stdin
		if to.Framed {
			k = stdinTTY
		}
		if err := errors.Join(c.tellFiles(k, []byte(run), to.W), to.W.Close()); err != nil {
			return err
		}
		select {
		case k := <-c.written:
			if k == broken {
				return fmt.Errorf("cannot write to run %s: the front could not read the content: %w",
					run, chat.ErrInvalid)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cannot write to run %s: %w", run, context.Cause(ctx))
		}
	}
}

// frame sends one value of a stream: a page of a log, or a piece that a run printed.
func (c *call) frame(v any) error {
	p, err := encode(v)
	if err == nil {
		err = c.tellAll(framePart, frame, p)
	}
	return err
}
