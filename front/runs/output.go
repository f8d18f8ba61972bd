package runs

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/verbs"
)

// Bounds on the kept output of runs, in bytes: of all runs, and of one caller's. Both leave room
// below the front's cgroup limit.
const (
	maxOutput     = 384 << 20
	maxOutputEach = 96 << 20
	// leastOutput is each run's guaranteed part of it.
	leastOutput = 2 * 64 << 10
)

// Streams reads the output of runs from the descriptors that a [verbs.Root] passes. It checks no
// command: [Chats] does, before.
type Streams struct {
	below verbs.Streams
	room  *stream.Room
}

// NewStreams reads the runs of below.
func NewStreams(below verbs.Streams) *Streams {
	return &Streams{below, stream.NewRoom(maxOutput, maxOutputEach)}
}

// enter takes room for the output of one run of the caller's.
func (s *Streams) enter(ctx context.Context) (*stream.Reservation, error) {
	return s.room.Enter(chat.CallerFrom(ctx).Name, leastOutput)
}

// Run is [verbs.Chats].
func (s *Streams) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error) {
	spec.OutputMax = cmp.Or(spec.OutputMax, chat.DefaultOutputMax)
	reservation, err := s.enter(ctx)
	if err != nil {
		return chat.RunResult{}, err
	}
	defer reservation.Leave()
	o := newOutput(spec.OutputMax, reservation, nil)
	res, err := s.below.Run(ctx, id, spec, o.begun(spec.Started))
	o.end()
	o.addTo(&res)
	return res, err
}

// RunTo is [verbs.Chats]. While out does not return, the run may be blocked by its own output. An
// OutputMax is [chat.ErrInvalid]: no output is stored.
func (s *Streams) RunTo(
	ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output,
) (chat.RunResult, error) {
	if err := spec.CheckStreamed(); err != nil {
		return chat.RunResult{}, err
	}
	o := newOutput(0, nil, out)
	res, err := s.below.Run(ctx, id, spec, o.begun(spec.Started))
	o.end()
	o.addCounts(&res)
	return res, err
}

// Attach is [verbs.Chats].
func (s *Streams) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, out chat.Output,
) (chat.RunResult, error) {
	o := newOutput(0, nil, out)
	res, err := s.below.Attach(ctx, id, a, o.begun(a.Started))
	o.end()
	o.addCounts(&res)
	return res, err
}

// output reads the two streams of one run.
type output struct {
	out   chat.Output
	of    [2]*stream.Capture
	files []*os.File
	reads sync.WaitGroup
}

// newOutput keeps max bytes of each stream, and gives all of both to out, which may be nil.
func newOutput(max int64, reservation *stream.Reservation, out chat.Output) *output {
	return &output{out: out, of: [2]*stream.Capture{
		stream.NewCapture(max).Within(reservation), stream.NewCapture(max).Within(reservation),
	}}
}

// begun begins to read.
func (o *output) begun(started func(run string)) verbs.Begun {
	return func(run string, stdout, stderr *os.File) {
		if started != nil {
			started(run)
		}
		o.files = []*os.File{stdout, stderr}
		for i, name := range []string{chat.Stdout, chat.Stderr} {
			var to func([]byte)
			if o.out != nil {
				to = func(p []byte) { o.out(name, p) }
			}
			o.reads.Go(func() { o.of[i].Take(o.files[i], to) })
		}
	}
}

// end returns when nothing is read any more, and closes the streams.
func (o *output) end() {
	for _, f := range o.files {
		if f.SetReadDeadline(time.Now().Add(stream.DrainTime)) != nil {
			_ = f.Close() // which ends its read too
		}
	}
	o.reads.Wait()
	for _, f := range o.files {
		_ = f.Close() // nothing was written to it
	}
}

func (o *output) addCounts(res *chat.RunResult) {
	res.StdoutBytes, res.StderrBytes = o.of[0].Total(), o.of[1].Total()
}

func (o *output) addTo(res *chat.RunResult) {
	o.addCounts(res)
	res.Stdout, res.Stderr = o.of[0].Text(), o.of[1].Text()
	res.StdoutReplaced, res.StderrReplaced = o.of[0].Replaced(), o.of[1].Replaced()
	res.Truncated = o.of[0].Truncated() || o.of[1].Truncated()
}
