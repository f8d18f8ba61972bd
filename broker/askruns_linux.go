package broker

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/stream"
	"github.com/chatd/chatd/sys"
)

// Run is [Root].
func (c *Client) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec, begun Begun,
) (chat.RunResult, error) {
	return ask[chat.RunResult](ctx, c, "run", id, namedRun{spec, spec.Named},
		hooks{streams: pipes(begun)})
}

// Attach is [Root].
func (c *Client) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, begun Begun,
) (chat.RunResult, error) {
	return ask[chat.RunResult](ctx, c, "attach", id, a, hooks{streams: pipes(begun)})
}

// pipes gives begun the streams of a run, whose reads can be given up.
func pipes(begun Begun) func(run string, fds [2]int) error {
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

// OpenRun is [Root].
func (c *Client) OpenRun(ctx context.Context, id chat.ID, run string) (o stream.Opened, err error) {
	answer, err := ask[opened](ctx, c, "open_run", id, inRun{Run: run},
		hooks{streams: func(_ string, fds [2]int) error {
			o.Stdout = os.NewFile(uintptr(fds[0]), chat.Stdout)
			o.Stderr = os.NewFile(uintptr(fds[1]), chat.Stderr)
			return nil
		}})
	if err != nil {
		return stream.Opened{}, errors.Join(err, o.Close())
	}
	o.Run, o.Max = answer.Run, answer.Max
	return o, nil
}

// AwaitRun is [Root].
func (c *Client) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	return ask[chat.RunResult](ctx, c, "await_run", id, inRun{Run: run}, hooks{})
}

// WriteStdin is [Root].
func (c *Client) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool, write Writes,
) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	w := stdinWriter{write: write, told: make(chan error, 1)}
	_, err := ask[nothing](ctx, c, "write_stdin", id, inRun{Run: run, Last: last},
		hooks{stdin: func(l *link, to stream.Input) { w.begin(within, l, to) }})
	return w.explain(ctx, cancel, err)
}

// stdinWriter writes to a run beside the call that brought its standard input.
type stdinWriter struct {
	write Writes
	began bool
	told  chan error // how it went
}

func (w *stdinWriter) begin(ctx context.Context, l *link, to stream.Input) {
	w.began = true
	go func() {
		err := w.write(ctx, to)
		w.told <- err
		last := end
		if err != nil {
			last = broken
		}
		_ = l.send(last, nil) // the call may have ended
	}()
}

// explain is the error of the call, once nothing is written any more. An error of the writing is
// the reason of what chatd-root says, unless that is that the run has ended, or the call ended
// first and ended the writing.
func (w *stdinWriter) explain(ctx context.Context, cancel func(), err error) error {
	if !w.began {
		return err
	}
	left, first := ctx.Err() != nil, len(w.told) > 0
	cancel()
	own := <-w.told
	if own == nil || err == nil || !left && !first || errors.Is(err, chat.ErrWrongPhase) {
		return err
	}
	if left {
		return errors.Join(own, err)
	}
	return own
}
