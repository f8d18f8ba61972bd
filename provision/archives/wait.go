package archives

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/session"
)

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
	err = p.first(ctx, err, <-taken, <-sent)
	return r, err
}

// first is the reason for the end: the caller's, the process's own, what became of its output, and
// of its input. The others follow of it.
func (p *Process) first(ctx context.Context, reported, taken, sent error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("cannot go on: %w", context.Cause(ctx))
	case taken != nil:
		return taken
	case reported != nil:
		return reported
	}
	return sent
}

// send passes the input. A process that does not take all of it says why.
func (p *Process) send() (err error) {
	defer func() { session.ClosePipes(p.in) }()
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
	defer func() { session.ClosePipes(p.out) }()
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
	case last.Error != nil:
		return r, p.failure(last.Error.Text, last.Error.Kind)
	}
	err = fmt.Errorf("chatd-archive ended without an answer: %w", chat.ErrBusy)
	if complaint != "" {
		err = fmt.Errorf("%w: %s", err, chat.QuoteOutput(complaint))
	}
	return r, err
}

// failure is the error that the process reported, as its own words.
func (p *Process) failure(text, kind string) error {
	err := fmt.Errorf("chatd-archive: %s", chat.QuoteOutput(text))
	if k := kinds[kind]; k != nil {
		return fmt.Errorf("%w: %w", err, k)
	}
	return err
}
