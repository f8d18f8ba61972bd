package broker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
)

type (
	openAnswer struct {
		Run chat.Run `json:"run"`
		Max int64    `json:"max,omitempty"`
	}
	// namedRun carries the paths that the front found in a command: the API's JSON has no field for
	// them.
	namedRun struct {
		chat.RunSpec
		Named []chat.NamedPath `json:"named,omitempty"`
	}
	inRun struct {
		Run    string         `json:"run"`
		Signal chat.RunSignal `json:"signal,omitzero"`
		Last   bool           `json:"last,omitempty"` // close standard input after what is written
	}
)

func (n namedRun) spec() chat.RunSpec {
	s := n.RunSpec
	s.Named = n.Named
	return s
}

var (
	startRun = verb("start_run",
		func(c *call, ctx context.Context, id chat.ID, a namedRun) (chat.Run, error) {
			return c.StartRun(ctx, id, a.spec())
		})
	run = verb("run", func(c *call, ctx context.Context, id chat.ID, a namedRun) (chat.RunResult, error) {
		return c.Run(ctx, id, a.spec(), c.streams)
	})
	attach = verb("attach",
		func(c *call, ctx context.Context, id chat.ID, a chat.Attach) (chat.RunResult, error) {
			return c.Attach(ctx, id, a, c.streams)
		})
	signalRun = verb("run_signal",
		func(c *call, ctx context.Context, id chat.ID, a inRun) (none, error) {
			return none{}, c.SignalRun(ctx, id, a.Run, a.Signal)
		})
	openRun = verb("open_run",
		func(c *call, ctx context.Context, id chat.ID, run string) (openAnswer, error) {
			o, err := c.OpenRun(ctx, id, run)
			if err == nil && o.Stdout != nil {
				err = c.tellFiles(streams, []byte(run), o.Stdout, o.Stderr)
			}
			return openAnswer{o.Run, o.Max}, errors.Join(err, o.Close())
		})
	awaitRun   = verb("await_run", (*call).AwaitRun)
	writeStdin = verb("write_stdin", func(c *call, ctx context.Context, id chat.ID, a inRun) (none, error) {
		return none{}, c.WriteStdin(ctx, id, a.Run, a.Last, c.writes(a.Run))
	})
)

func (c *Client) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	return startRun.Call(ctx, c.Calls, id, namedRun{spec, spec.Named})
}

func (c *Client) SignalRun(ctx context.Context, id chat.ID, run string, s chat.RunSignal) error {
	return signalRun.Do(ctx, c.Calls, id, inRun{Run: run, Signal: s})
}

func (c *Client) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec, begun verbs.Begun,
) (chat.RunResult, error) {
	return callWith(ctx, c, run, id, namedRun{spec, spec.Named}, hooks{streams: pipes(begun)})
}

func (c *Client) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, begun verbs.Begun,
) (chat.RunResult, error) {
	return callWith(ctx, c, attach, id, a, hooks{streams: pipes(begun)})
}

// pipes passes the streams of a run to begun as files whose reads deadlines can cancel.
func pipes(begun verbs.Begun) func(run string, fds [2]int) error {
	return func(run string, fds [2]int) error {
		for _, fd := range fds {
			if err := unix.SetNonblock(fd, true); err != nil {
				return errors.Join(fmt.Errorf("cannot read run %s: %w", run, err), sys.CloseAll(fds[:]))
			}
		}
		begun(run, os.NewFile(uintptr(fds[0]), chat.Stdout), os.NewFile(uintptr(fds[1]), chat.Stderr))
		return nil
	}
}

func (c *Client) OpenRun(ctx context.Context, id chat.ID, run string) (o stream.OpenRun, err error) {
	answer, err := callWith(ctx, c, openRun, id, run,
		hooks{streams: func(_ string, fds [2]int) error {
			o.Stdout = os.NewFile(uintptr(fds[0]), chat.Stdout)
			o.Stderr = os.NewFile(uintptr(fds[1]), chat.Stderr)
			return nil
		}})
	if err != nil {
		return stream.OpenRun{}, errors.Join(err, o.Close())
	}
	o.Run, o.Max = answer.Run, answer.Max
	return o, nil
}

func (c *Client) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	return awaitRun.Call(ctx, c.Calls, id, run)
}

func (c *Client) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool, write verbs.Writes,
) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	w := stdinWriter{write: write, result: make(chan error, 1)}
	_, err := callWith(ctx, c, writeStdin, id, inRun{Run: run, Last: last},
		hooks{stdin: func(l *link, to stream.Input) { w.begin(within, l, to) }})
	return w.explain(ctx, cancel, err)
}

// stdinWriter writes to a run in a goroutine beside the call.
type stdinWriter struct {
	write  verbs.Writes
	began  bool
	result chan error // the result of write
}

func (w *stdinWriter) begin(ctx context.Context, l *link, to stream.Input) {
	w.began = true
	go func() {
		err := w.write(ctx, to)
		w.result <- err
		last := end
		if err != nil {
			last = broken
		}
		_ = l.send(last, nil) // the call may have ended
	}()
}

// explain waits for the end of the writing and returns the call's error. An error of the writing
// caused chatd-root's, unless the run had ended, or the end of the call ended the writing.
func (w *stdinWriter) explain(ctx context.Context, cancel func(), err error) error {
	if !w.began {
		return err
	}
	left, first := ctx.Err() != nil, len(w.result) > 0
	cancel()
	own := <-w.result
	if own == nil || err == nil || !left && !first || errors.Is(err, chat.ErrWrongPhase) {
		return err
	}
	if left {
		return errors.Join(own, err)
	}
	return own
}

// The streams of a call. watch notices a front that is gone, and cancels the call.

// streams passes the streams of a run to the front and closes them here: without a front they end.
func (c *call) streams(run string, stdout, stderr *os.File) {
	_ = errors.Join(c.tellFiles(streams, []byte(run), stdout, stderr), stdout.Close(), stderr.Close())
}

// writes passes a run's input to the front, and returns once the front reports the end. It cannot
// verify the report: a front may keep its descriptor and write for as long as the run reads.
func (c *call) writes(run string) verbs.Writes {
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
				return chat.Invalid("cannot write to run %s: the front could not read the content", run)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cannot write to run %s: %w", run, context.Cause(ctx))
		}
	}
}
