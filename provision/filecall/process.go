package filecall

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/session"
)

// Process is the process of a tool, with chatd's ends of its streams.
type Process struct {
	call                 *Call
	cmd                  *exec.Cmd
	files                session.Files
	ended                chan struct{}
	inR, inW, outR, outW *os.File
}

// Start starts the tool, the program shim, as root in a mount and a pid namespace of its own. It
// waits for [Process.Speak], and becomes the chat then. With hosts it sees the tree of process 1, as
// the sessions of systemd do. The caller closes the Process.
func (c *Call) Start(shim string, hosts bool) (*Process, error) {
	cmd := exec.Command(shim, "filetool")
	cmd.Args[0], cmd.Dir = plan.ProgramName, "/"
	cmd.Env = []string{"GOMAXPROCS=2"} // it does one thing after the other
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID,
	}
	if !hosts {
		return c.start(cmd, cmd.Start)
	}
	ns, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return nil, fmt.Errorf("cannot open the mount namespace of process 1: %w", err)
	}
	defer ns.Close()
	return c.start(cmd, func() error { return sys.InMountNamespace(ns, cmd.Start) })
}

func (c *Call) start(cmd *exec.Cmd, start func() error) (*Process, error) {
	p := &Process{call: c, cmd: cmd, ended: make(chan struct{})}
	p.files.Stderr = p.files.Output("stderr")
	err := p.files.Err
	if err == nil {
		err = p.open()
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = p.inR, p.outW, p.files.Stderr
		err = start()
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("cannot start a file tool: %w", err)
	}
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
	return err
}

// PID is the process's id. The process is not collected before [Process.End].
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Close closes the streams that were not given to the talk. The process may go on.
func (p *Process) Close() {
	session.ClosePipes(p.inR, p.inW, p.outR, p.outW)
	p.files.Close()
}

// Ended is closed once the process was reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// endTimeout bounds the wait for a killed tool: one that sleeps in the kernel ends later.
const endTimeout = time.Second

// End kills the tool, and waits for its end within bounds.
func (p *Process) End() {
	_ = p.cmd.Process.Kill() // it may have ended
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
	}
}

// Speak sends the request with the tool's rights, and passes the other ends of the streams to the
// call's talk, which speaks with the tool. A failure that the tool answers is a [*filewire.Failure].
func (p *Process) Speak(ctx context.Context, may plan.FileTool) (filewire.Answer, error) {
	if err := p.request(ctx, may); err != nil {
		session.ClosePipes(p.inW) // the tool reads the end of its input
		return filewire.Answer{}, err
	}
	c := p.call
	s := filewire.LiveTool{Tool: c.Tool, In: p.inW, Out: p.outR, Max: may.MaxBytes}
	p.inW, p.outR = nil, nil
	a, err := c.talk(ctx, s)
	return a, c.believable(err)
}

// request sends the request. It ends with ctx, even if the tool does not read.
func (p *Process) request(ctx context.Context, may plan.FileTool) error {
	req, err := filewire.NewRequest(p.call.Tool, p.call.args)
	if err != nil {
		return err
	}
	may.Rules = p.call.Rules
	line, err := may.Line()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_, _ = p.inW.SetWriteDeadline(past), p.outR.SetReadDeadline(past)
	})
	defer stop()
	req.Links = p.call.links
	if _, err = p.inW.Write(line); err == nil {
		err = filewire.Send(p.inW, req)
	}
	if err != nil {
		return fmt.Errorf("cannot send the request: %w", err)
	}
	return nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)
