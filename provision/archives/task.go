package archives

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
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
	task            Task
	ended           chan struct{}
	in, out, report *os.File
}

// Start gives cmd its streams and calls start to start it. b are the descriptors that cmd has
// already. The caller closes the Process, and b.
func (t Task) Start(cmd *exec.Cmd, b *session.Files, start func() error) (*Process, error) {
	if b.Err != nil {
		return nil, b.Err
	}
	inR, inW, inErr := os.Pipe()
	outR, outW, outErr := os.Pipe()
	reportR, reportW, reportErr := os.Pipe()
	defer session.ClosePipes(inR, outW, reportW)
	p := &Process{task: t, in: inW, out: outR, report: reportR, ended: make(chan struct{})}
	err := errors.Join(inErr, outErr, reportErr)
	if err != nil {
		err = fmt.Errorf("cannot make the streams of chatd-archive: %w", err)
	} else {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, reportW
		err = start()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	b.CloseChildEnds()
	go func() {
		defer close(p.ended)
		session.Collect(cmd)
	}()
	return p, nil
}

// Close closes chatd's ends of the streams. The process may go on.
func (p *Process) Close() { session.ClosePipes(p.in, p.out, p.report) }

// Ended is closed once the process was reaped.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Result is what chatd-archive found: see [archive.Summary].
type Result struct {
	Entries   int64    `json:"entries"`
	Bytes     int64    `json:"bytes"`
	SHA256    string   `json:"sha256"`
	Left      int64    `json:"left"`
	LeftNames []string `json:"left_names"`
	Copied    int64    `json:"copied"`
	// CheckIdentity decrypts what was written now.
	CheckIdentity string `json:"check_identity"`
}

// With adds what another command left out.
func (r Result) With(more Result) Result {
	r.Left += more.Left
	names := append(slices.Clip(r.LeftNames), more.LeftNames...)
	r.LeftNames = names[:min(len(names), maxNames)]
	return r
}

// line is one line of a report; see package main of chatd-archive.
type line struct {
	Progress *struct {
		Entries int64 `json:"entries"`
		Bytes   int64 `json:"bytes"`
	} `json:"progress"`
	Done  *Result `json:"done"`
	Error *struct {
		Text string `json:"text"`
		Kind string `json:"kind"`
	} `json:"error"`
}

// kinds are the errors that chatd-archive names.
var kinds = map[string]error{
	"invalid": chat.ErrInvalid, "denied": chat.ErrDenied, "exists": chat.ErrExists,
	"conflict": chat.ErrConflict,
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Wait passes the input and the output, and returns what the process reports at its end. With ctx
// it ends early; the process goes on until the caller ends its session.
func (p *Process) Wait(ctx context.Context) (Result, error) {
	stop := context.AfterFunc(ctx, func() {
		for _, f := range []*os.File{p.in, p.out, p.report} {
			_ = f.SetDeadline(past) // a pipe of this process
		}
	})
	defer stop()
	sent, taken := make(chan error, 1), make(chan error, 1)
	go func() { sent <- p.send() }()
	go func() { taken <- p.take() }()
	r, err := p.read()
	if err != nil { // neither may wait for a process that has failed
		session.ClosePipes(p.in)
	}
	takenErr, sentErr := <-taken, <-sent
	if ctx.Err() != nil {
		return r, fmt.Errorf("cannot go on: %w", context.Cause(ctx))
	}
	return r, cmp.Or(takenErr, err, sentErr) // the others follow of the first
}

// send passes the input. A process that does not take all of it says why.
func (p *Process) send() (err error) {
	defer session.ClosePipes(p.in)
	if p.task.In == nil {
		return nil
	}
	_, err = io.Copy(p.in, p.task.In)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot give chatd-archive its input: %w", err)
	}
	return nil
}

// take passes the output. Where that fails the process gets EPIPE.
func (p *Process) take() (err error) {
	defer session.ClosePipes(p.out)
	if p.task.Out == nil {
		_, err = io.Copy(io.Discard, p.out)
		return err
	}
	return p.task.Out(p.out)
}

// maxLine bounds a line of the report, and maxNames the names in it.
const (
	maxLine  = 64 << 10
	maxNames = 20
)

// read reads the report to its end. Its last line is the answer; what is not JSON is a complaint of
// the programs before it.
func (p *Process) read() (r Result, err error) {
	in, last, complaint := bufio.NewReaderSize(p.report, maxLine), line{}, ""
	for {
		text, err := in.ReadSlice('\n')
		var l line
		if jerr := json.Unmarshal(text, &l); jerr == nil && len(bytes.TrimSpace(text)) > 0 {
			if last = l; l.Progress != nil && p.task.Progress != nil {
				p.task.Progress(l.Progress.Entries, l.Progress.Bytes)
			}
		} else if len(text) > 0 && complaint == "" {
			complaint = string(text)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			break
		}
	}
	switch {
	case last.Done != nil && len(last.Done.LeftNames) <= maxNames:
		return *last.Done, nil
	case last.Error != nil: // in its own words
		err = fmt.Errorf("chatd-archive: %s", chat.QuoteOutput(last.Error.Text))
		if kind := kinds[last.Error.Kind]; kind != nil {
			err = fmt.Errorf("%w: %w", err, kind)
		}
		return r, err
	}
	err = fmt.Errorf("chatd-archive ended without an answer: %w", chat.ErrBusy)
	if complaint != "" {
		err = fmt.Errorf("%w: %s", err, chat.QuoteOutput(complaint))
	}
	return r, err
}
