package archives

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/session"
)

// Task is one command of chatd-archive.
type Task struct {
	// Args are the command and its arguments.
	Args []string
	// In is its standard input; nil is none.
	In io.Reader
	// Out takes its standard output to the end; nil is for a command without output.
	Out func(io.Reader) error
	// Progress gets what is done, each second.
	Progress func(entries, bytes int64)
}

// Argv starts the command inside a session.
func (t Task) Argv() []string {
	return append([]string{plan.InsideArchive, t.Args[0], "--report"}, t.Args[1:]...)
}

// Process is the command that runs, with chatd's ends of its streams.
type Process struct {
	task         Task
	files        *session.Files
	ended        chan struct{}
	in, out      *os.File
	report       *os.File
	childStreams []*os.File
}

// Start gives cmd its streams and calls start to start it. b are the descriptors that cmd has
// already. The caller closes the Process, and b.
func (t Task) Start(cmd *exec.Cmd, b *session.Files, start func() error) (*Process, error) {
	if b.Err != nil {
		return nil, b.Err
	}
	p := &Process{task: t, files: b, ended: make(chan struct{})}
	err := p.open(cmd)
	if err == nil {
		err = start()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	b.CloseChildEnds()
	session.ClosePipes(p.childStreams...)
	go func() {
		defer close(p.ended)
		session.Collect(cmd)
	}()
	return p, nil
}

// open makes the three pipes.
func (p *Process) open(cmd *exec.Cmd) error {
	inR, inW, inErr := os.Pipe()
	outR, outW, outErr := os.Pipe()
	reportR, reportW, reportErr := os.Pipe()
	p.in, p.out, p.report = inW, outR, reportR
	p.childStreams = []*os.File{inR, outW, reportW}
	if err := errors.Join(inErr, outErr, reportErr); err != nil {
		return fmt.Errorf("cannot make the streams of chatd-archive: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, reportW
	return nil
}

// Close closes chatd's ends of the streams. The process may go on.
func (p *Process) Close() {
	session.ClosePipes(p.in, p.out, p.report)
	session.ClosePipes(p.childStreams...)
}

// Ended is closed once the process was reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }
