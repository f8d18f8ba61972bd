package apitest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
)

// Run knows a few commands, see [Command]. OnRun and OnRunTo answer in its place.
func (m *Memory) Run(
	ctx context.Context, id chat.ID, spec chat.RunSpec, begun func(run string, stdout, stderr *os.File),
) (res chat.RunResult, err error) {
	if err := spec.Validate(); err != nil {
		return res, err
	}
	c, err := m.Get(ctx, id)
	if err != nil {
		return res, err
	}
	timeout, err := chat.Profile{Name: c.Profile}.RunTimeout(spec.Timeout, chat.DefaultTimeout)
	if err != nil {
		return res, err
	}
	spec.Timeout = chat.Duration(timeout)
	p := printer{begun: begun}
	spec.Started = p.begin
	switch {
	case spec.OutputMax == 0 && m.OnRunTo != nil:
		res, err = m.OnRunTo(ctx, spec, p.print)
		res.Stdout, res.Stderr = "", ""
	case m.OnRun != nil:
		res, err = m.OnRun(ctx, spec)
	default:
		res = Command(spec, c.Home)
	}
	if err == nil {
		p.printAll(res)
	}
	res.Stdout, res.Stderr = "", ""
	return res, errors.Join(err, p.end())
}

// Attach shows what was typed, and a sequence that no terminal should get, until ctx ends, or
// immediately where "exit" was typed.
func (m *Memory) Attach(
	ctx context.Context, id chat.ID, a chat.Attach, begun func(run string, stdout, stderr *os.File),
) (chat.RunResult, error) {
	if err := a.Validate(); err != nil {
		return chat.RunResult{}, err
	}
	l, err := m.Log(ctx, id, 0)
	if err != nil {
		return chat.RunResult{}, err
	}
	p := printer{begun: begun}
	p.begin("run-attach")
	p.print(chat.Stdout, []byte("\x1b[1m"+l.Text+"\x1b]52;c;aGk=\a\x1b[m"))
	if !strings.Contains(l.Text, "exit") {
		<-ctx.Done()
	}
	return chat.RunResult{}, p.end()
}

// OpenRun opens what a background run printed.
func (m *Memory) OpenRun(ctx context.Context, id chat.ID, run string) (o stream.OpenRun, err error) {
	r, err := m.runOf(ctx, id, run)
	if err != nil {
		return o, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o = stream.OpenRun{Run: r.info, Max: r.info.OutputMax}
	for _, f := range []struct {
		to   **os.File
		from *os.File
	}{{&o.Stdout, r.out[0]}, {&o.Stderr, r.out[1]}} {
		if *f.to, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", f.from.Fd())); err != nil {
			return stream.OpenRun{}, errors.Join(err, o.Close())
		}
	}
	return o, nil
}

// AwaitRun waits for the end of a background run.
func (m *Memory) AwaitRun(ctx context.Context, id chat.ID, run string) (chat.RunResult, error) {
	r, err := m.runOf(ctx, id, run)
	if err != nil {
		return chat.RunResult{}, err
	}
	select {
	case <-r.over:
		return *r.info.Result, nil
	case <-ctx.Done():
		return chat.RunResult{}, fmt.Errorf("cannot follow the run: %w", context.Cause(ctx))
	}
}

// WriteStdin keeps what comes; the end of it ends the run.
func (m *Memory) WriteStdin(
	ctx context.Context, id chat.ID, run string, last bool,
	write func(context.Context, stream.Input) error,
) error {
	run1, err := m.runOf(ctx, id, run)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var b []byte
	read := make(chan error, 1)
	go func() {
		var err error
		b, err = io.ReadAll(r)
		read <- errors.Join(err, r.Close())
	}()
	err = write(ctx, stream.Input{W: w})
	if err = errors.Join(err, <-read); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	run1.stdin.Write(b)
	if last {
		m.endRun(run1, chat.RunResult{Stdout: run1.stdin.String()})
	}
	return nil
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
