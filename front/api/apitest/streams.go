package apitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
)

// Texts are chats that answer a run with what it printed, as a [Memory] does.
type Texts interface {
	Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error)
	RunTo(
		ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output,
	) (chat.RunResult, error)
	Attach(
		ctx context.Context, id chat.ID, a chat.Attach, out chat.Output,
	) (chat.RunResult, error)
	ShowRun(ctx context.Context, id chat.ID, run string) (chat.Run, error)
	FollowRun(
		ctx context.Context, id chat.ID, run, cursor string, out func(chat.Frame),
	) (chat.RunResult, error)
	WriteStdin(
		ctx context.Context, id chat.ID, run string, body io.ReadCloser, last bool,
	) error
}

// Streams makes verbs.Streams of Texts, so that these can stand in for chatd-root.
type Streams struct{ Of Texts }

// Run is verbs.Streams. Without an OutputMax it is RunTo.
func (s Streams) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec,
	begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	p := printer{begun: begun}
	spec.Started = p.begin
	if spec.OutputMax == 0 {
		res, err := s.Of.RunTo(ctx, id, spec, p.print)
		return res, errors.Join(err, p.end())
	}
	res, err := s.Of.Run(ctx, id, spec)
	if err == nil {
		p.printAll(res)
	}
	res.Stdout, res.Stderr = "", ""
	return res, errors.Join(err, p.end())
}

// Attach is verbs.Streams.
func (s Streams) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	p := printer{begun: begun}
	a.Started = p.begin
	res, err := s.Of.Attach(ctx, id, a, p.print)
	return res, errors.Join(err, p.end())
}

// OpenRun is verbs.Streams.
func (s Streams) OpenRun(ctx context.Context, id chat.ID, run string) (o stream.OpenRun, err error) {
	r, err := s.Of.ShowRun(ctx, id, run)
	if err != nil || !r.Background {
		return stream.OpenRun{Run: r}, err
	}
	var res chat.RunResult
	if r.Result != nil {
		res = *r.Result
		without := res
		without.Stdout, without.Stderr = "", ""
		r.Result = &without
	}
	o = stream.OpenRun{Run: r, Max: r.OutputMax}
	o.Stdout, err = fileOf(res.Stdout, r.OutputMax)
	if err == nil {
		o.Stderr, err = fileOf(res.Stderr, r.OutputMax)
	}
	if err != nil {
		return stream.OpenRun{}, errors.Join(err, o.Close())
	}
	return o, nil
}

// fileOf is a file without a name that holds a stream.
func fileOf(text string, max int64) (*os.File, error) {
	f, err := os.CreateTemp("", "chatd-stream-")
	if err != nil {
		return nil, err
	}
	_, err = stream.NewFile(f, max).Write([]byte(text))
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// AwaitRun is verbs.Streams.
func (s Streams) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	return s.Of.FollowRun(ctx, id, run, "", func(chat.Frame) {})
}

// WriteStdin is verbs.Streams.
func (s Streams) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool,
	write func(context.Context, stream.Input) error,
) error {
	if _, err := s.Of.ShowRun(ctx, id, run); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := b.ReadFrom(r)
		read <- errors.Join(err, r.Close())
	}()
	err = write(ctx, stream.Input{W: w})
	if err = errors.Join(err, <-read); err != nil {
		return err
	}
	return s.Of.WriteStdin(ctx, id, run, io.NopCloser(&b), last)
}

// printer writes what a run prints to pipes, whose read ends it gives to begun before.
type printer struct {
	begun  func(run string, stdout, stderr *os.File)
	once   sync.Once
	to     map[string]*os.File
	failed error
}

func (p *printer) begin(run string) {
	p.once.Do(func() {
		p.to = map[string]*os.File{}
		var reads []*os.File
		for _, name := range []string{chat.Stdout, chat.Stderr} {
			r, w, err := os.Pipe()
			if err != nil {
				p.failed = err
				return
			}
			p.to[name], reads = w, append(reads, r)
		}
		p.begun(run, reads[0], reads[1])
	})
}

func (p *printer) print(name string, b []byte) {
	p.begin("run-1")
	if p.failed == nil {
		_, p.failed = p.to[name].Write(b)
	}
}

func (p *printer) printAll(res chat.RunResult) {
	var both sync.WaitGroup
	p.begin("run-1")
	for name, text := range map[string]string{chat.Stdout: res.Stdout, chat.Stderr: res.Stderr} {
		if p.failed == nil && text != "" {
			both.Go(func() { _, _ = strings.NewReader(text).WriteTo(p.to[name]) })
		}
	}
	both.Wait()
}

// end closes the write ends. The reader may have left before.
func (p *printer) end() error {
	for _, w := range p.to {
		_ = w.Close()
	}
	if errors.Is(p.failed, syscall.EPIPE) {
		return nil
	}
	return p.failed
}
