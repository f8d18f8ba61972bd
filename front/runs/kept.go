package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
)

// ShowRun is [verbs.Chats].
func (s *Streams) ShowRun(ctx context.Context, id chat.ID, run string) (r chat.Run, err error) {
	o, err := s.below.OpenRun(ctx, id, run)
	if err != nil {
		return chat.Run{}, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if o.Stdout == nil {
		return o.Run, nil
	}
	reservation, err := s.enter(ctx)
	if err != nil {
		return chat.Run{}, err
	}
	defer reservation.Leave()
	var res chat.RunResult
	if o.Run.Result != nil {
		res = *o.Run.Result
	}
	kept, missed := newOutput(o.Run.OutputMax, reservation, nil), [2]int64{}
	for i, f := range []*os.File{o.Stdout, o.Stderr} {
		if missed[i], err = kept.of[i].ReadFile(stream.NewFile(f, o.Max)); err != nil {
			return chat.Run{}, err
		}
	}
	truncated := res.Truncated || missed != [2]int64{}
	kept.addTo(&res)
	res.StdoutBytes, res.StderrBytes = res.StdoutBytes+missed[0], res.StderrBytes+missed[1]
	res.Truncated = res.Truncated || truncated
	o.Run.Result = &res
	return o.Run, nil
}

// ReadRun is [verbs.Chats]. It returns at most [chat.MaxReadRun] of each stream.
func (s *Streams) ReadRun(
	ctx context.Context, id chat.ID, run, cursor string,
) (out chat.RunOutput, err error) {
	at, err := chat.ParseRunCursor(cursor)
	if err != nil {
		return out, err
	}
	o, err := s.openKept(ctx, id, run)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return readKept(o, &at, make([]byte, chat.MaxReadRun))
}

// openKept opens a background run.
func (s *Streams) openKept(ctx context.Context, id chat.ID, run string) (stream.OpenRun, error) {
	o, err := s.below.OpenRun(ctx, id, run)
	if err == nil && o.Stdout == nil {
		err = fmt.Errorf("cannot read run %s: its output goes to who started it: %w",
			o.Run.ID, chat.ErrWrongPhase)
	}
	return o, err
}

// followEvery is the polling interval of a followed run.
const followEvery = 30 * time.Millisecond

// FollowRun is [verbs.Chats]. Several callers may follow a run, and none that leaves ends it.
// Frame.Missing counts the bytes before a frame that are not kept any more.
func (s *Streams) FollowRun(
	ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame),
) (res chat.RunResult, err error) {
	at, err := chat.ParseRunCursor(cursor)
	if err != nil {
		return res, err
	}
	o, err := s.openKept(ctx, id, run)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	ended, leave := s.await(ctx, id, run)
	defer leave()
	buf := make([]byte, chat.MaxReadRun)
	var end *runEnd
	for {
		got, err := readKept(o, &at, buf)
		if err != nil {
			return res, err
		}
		for _, f := range got.Frames {
			out(f)
		}
		switch {
		case ctx.Err() != nil:
			return res, fmt.Errorf("cannot follow run %s: %w", run, context.Cause(ctx))
		case len(got.Frames) > 0:
			continue
		case end != nil:
			return end.res, end.err
		}
		select {
		case e := <-ended:
			end = &e // what it printed last is there now
		case <-time.After(followEvery):
		case <-ctx.Done():
		}
	}
}

// runEnd is how a background run ended.
type runEnd struct {
	res chat.RunResult
	err error
}

// await waits for the end of a background run, until leave is called.
func (s *Streams) await(ctx context.Context, id chat.ID, run string) (ended <-chan runEnd, leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	end, done := make(chan runEnd, 1), make(chan struct{})
	go func() {
		defer close(done)
		res, err := s.below.AwaitRun(ctx, id, run)
		end <- runEnd{res, err}
	}()
	return end, func() {
		cancel()
		<-done
	}
}

// readKept reads both streams once, as much of each as buf has room for, and moves the cursor.
func readKept(o stream.OpenRun, at *chat.RunCursor, buf []byte) (out chat.RunOutput, err error) {
	out.Frames, out.State = []chat.Frame{}, o.Run.State
	for _, s := range []struct {
		name string
		from *os.File
		at   *int64
	}{{chat.Stdout, o.Stdout, &at.Stdout}, {chat.Stderr, o.Stderr, &at.Stderr}} {
		n, from, err := stream.NewFile(s.from, o.Max).ReadAt(buf, *s.at)
		if err != nil {
			return out, err
		}
		missing := max(0, from-*s.at)
		out.Missing += missing
		*s.at = from + int64(n)
		if n > 0 {
			f := chat.NewFrame(s.name, time.Now().UTC(), buf[:n])
			f.Cursor, f.Missing = at.String(), missing
			out.Frames = append(out.Frames, f)
		}
	}
	out.Cursor = at.String()
	return out, nil
}
