package filecall

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/session"
	"github.com/chatd/chatd/shims"
)

// Process is the process of a tool, with chatd's ends of its streams.
type Process struct {
	call                 *Call
	files                *session.Files
	ended                chan struct{}
	inR, inW, outR, outW *os.File
}

// Start gives cmd its streams and calls start to start it. b are the descriptors that cmd has
// already; its stderr becomes a file of fixed size, for the errors of a tool that does not start.
// The caller closes the Process, and b.
func (c *Call) Start(
	cmd *exec.Cmd, b *session.Files, start func(*exec.Cmd) error,
) (*Process, error) {
	if b.Stderr = b.Output("stderr"); b.Err != nil {
		return nil, b.Err
	}
	p := &Process{call: c, files: b, ended: make(chan struct{})}
	err := p.open()
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = p.inR, p.outW, b.Stderr
		err = start(cmd)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	b.CloseChildEnds()
	session.ClosePipes(p.inR, p.outW)
	go func() {
		defer close(p.ended)
		session.Collect(cmd)
	}()
	return p, nil
}

func (p *Process) open() (err error) {
	if p.inR, p.inW, err = os.Pipe(); err == nil {
		p.outR, p.outW, err = os.Pipe()
	}
	if err != nil {
		return fmt.Errorf("cannot make the streams of a file tool: %w", err)
	}
	return nil
}

// Close closes the streams that were not given to the talk. The process may go on.
func (p *Process) Close() { session.ClosePipes(p.inR, p.inW, p.outR, p.outW) }

// Ended is closed once the process was reaped, after it exited or its cgroup was killed.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Speak sends the request with the tool's rights, and passes the other ends of the streams to the
// call's talk, which speaks with the tool. A failure that the tool answers is a [*files.Failure].
func (p *Process) Speak(ctx context.Context, may shims.FileTool) (files.Answer, error) {
	if err := p.request(ctx, may); err != nil {
		session.ClosePipes(p.inW) // the tool reads the end of its input
		return files.Answer{}, err
	}
	c := p.call
	s := files.LiveTool{Tool: c.Tool, In: p.inW, Out: p.outR, Max: may.MaxBytes, Linked: c.Linked}
	s.Check = func(op files.Op, name string) *files.Denial { return c.Check(op, name) }
	p.inW, p.outR = nil, nil
	a, err := c.talk(ctx, s)
	return a, c.believable(err)
}

// request sends the request. It ends with ctx, even if the tool does not read.
func (p *Process) request(ctx context.Context, may shims.FileTool) error {
	req, err := files.NewRequest(p.call.Tool, p.call.args)
	if err != nil {
		return err
	}
	line, err := may.Line()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = p.inW.SetWriteDeadline(past), p.outR.SetReadDeadline(past)
	})
	defer stop()
	req.Links = p.call.Links
	if _, err = p.inW.Write(line); err == nil {
		err = files.Send(p.inW, req)
	}
	if err != nil {
		return fmt.Errorf("cannot send the request: %w", err)
	}
	return nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)
