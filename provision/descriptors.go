package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/sys"
)

// boundFiles collects the descriptors that a child gets and those that chatd keeps.
type boundFiles struct {
	child        []*os.File
	mine         []*os.File
	info, report *os.File
	stderr       *os.File
	// barrier lets chatd-shim confine go on; raise runs before that.
	barrier            *os.File
	raise              func(context.Context, *sys.HeldProcess) error
	prepare            cgroup.Prepare // runs before the child is started
	err                error
	childEndsAreClosed bool
	// confine is the plan that the child got.
	confine shims.Plan
}

// pipe gives the write end to the child and returns the read end.
func (b *boundFiles) pipe() *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		b.err = errors.Join(b.err, fmt.Errorf("cannot make a pipe: %w", err))
		return nil
	}
	b.child, b.mine = append(b.child, w), append(b.mine, r)
	return r
}

// data gives the child a file without a name that holds content.
func (b *boundFiles) data(name string, content []byte) *os.File {
	f, err := sys.MemFile(name, content)
	if err != nil {
		b.err = errors.Join(b.err, err)
		return nil
	}
	b.child = append(b.child, f)
	return f
}

// stdio makes a file for the child's messages before it is confined; it is not one of the
// child's extra descriptors.
func (b *boundFiles) stdio(name string) *os.File {
	f, err := sys.MemFile(name, nil)
	if err == nil {
		err = sys.SealAt(f, 64<<10)
	}
	if err != nil {
		b.err = errors.Join(b.err, err)
		return nil
	}
	b.mine = append(b.mine, f)
	return f
}

// addBarrier gives the child the read end of the start barrier, where it waits.
func (b *boundFiles) addBarrier() {
	r, w, err := os.Pipe()
	if err != nil {
		b.err = errors.Join(b.err, fmt.Errorf("cannot make a pipe: %w", err))
		return
	}
	b.child, b.mine, b.barrier = append(b.child, r), append(b.mine, w), w
}

// openBarrier waits until the child waits at the barrier, calls raise, and lets it go on.
func (b *boundFiles) openBarrier(ctx context.Context, l *sys.HeldProcess, deadline time.Time) error {
	if b.barrier == nil {
		return nil
	}
	var report shims.Report
	if err := readJSON(b.report, deadline, &report); err != nil {
		return fmt.Errorf("cannot confine the session: %w", err)
	}
	if !report.Waiting {
		return fmt.Errorf("cannot confine the session: it does not wait: %s", report.Error)
	}
	if err := b.raise(ctx, l); err != nil {
		return err
	}
	if _, err := b.barrier.Write([]byte{1}); err != nil {
		return fmt.Errorf("cannot let the session go on: %w", err)
	}
	return nil
}

func (b *boundFiles) plan(p shims.Plan) {
	j, err := json.Marshal(p)
	if err != nil {
		b.err = errors.Join(b.err, fmt.Errorf("cannot write the plan: %w", err))
		return
	}
	b.data("plan", j)
	b.confine = p
}

func (b *boundFiles) closeChildEnds() {
	if !b.childEndsAreClosed {
		for _, f := range b.child {
			f.Close()
		}
	}
	b.childEndsAreClosed = true
}

func (b *boundFiles) close() {
	b.closeChildEnds()
	for _, f := range b.mine {
		f.Close()
	}
}

// complaint returns the child's stderr, as the end of an error message.
func (b *boundFiles) complaint() string {
	if b.stderr == nil {
		return ""
	}
	buf := make([]byte, 1<<10)
	n, _ := b.stderr.ReadAt(buf, 0)
	text := bytes.TrimSpace(bytes.TrimRight(buf[:n], "\x00"))
	if len(text) == 0 {
		return ""
	}
	return ": " + chat.QuoteOutput(string(text))
}

// readJSON reads one JSON value of at most 64 KiB, until deadline: a process of the chat may
// hold the pipe.
func readJSON(f *os.File, deadline time.Time, v any) error {
	if err := f.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("cannot read its report: %w", err)
	}
	return readReport(f, v)
}

func readReport(f *os.File, v any) error {
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(v); err != nil {
		return fmt.Errorf("cannot read its report: %w", err)
	}
	return nil
}
