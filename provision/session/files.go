package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
)

// Files are the descriptors that a child gets, and those that chatd keeps for it. The zero value is
// ready. Failures are joined in Err, which a caller checks once, before it starts the child.
type Files struct {
	// Child are the child's descriptors from 3 on, in their order (os/exec, Cmd.ExtraFiles).
	Child []*os.File
	// Report is the read end of chatd-shim's [plan.Report].
	Report *os.File
	// Stderr is the file of the child's messages; see [Files.Complaint].
	Stderr *os.File
	// Err joins the failures.
	Err error

	mine []*os.File // chatd's own
	info *os.File   // what bubblewrap reports (bwrap(1), --info-fd)
	// barrier lets chatd-shim confine go on; raise is called before.
	barrier *os.File
	raise   func(context.Context, *sys.ProcessHandle) error
	prepare cgroup.Prepare // runs before the child is started; may be nil
}

// Pipe gives the write end to the child and returns the read end.
func (b *Files) Pipe() *os.File {
	r, w := b.pipe()
	b.Child, b.mine = append(b.Child, w), append(b.mine, r)
	return r
}

func (b *Files) pipe() (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Err = errors.Join(b.Err, fmt.Errorf("cannot make a pipe: %w", err))
	}
	return r, w
}

// Data gives the child a file without a name that holds content.
func (b *Files) Data(name string, content []byte) *os.File {
	f, err := sys.MemFile(name, content)
	b.Child, b.Err = append(b.Child, f), errors.Join(b.Err, err)
	return f
}

// Output makes a file for the child's messages before it is confined; it is not one of the
// child's extra descriptors.
func (b *Files) Output(name string) *os.File {
	f, err := sys.MemFile(name, nil)
	if err == nil {
		err = sys.SealAt(f, 64<<10)
	}
	b.mine, b.Err = append(b.mine, f), errors.Join(b.Err, err)
	return f
}

// addBarrier gives the child the read end of the start barrier, where it waits.
func (b *Files) addBarrier() {
	r, w := b.pipe()
	b.Child, b.mine, b.barrier = append(b.Child, r), append(b.mine, w), w
}

// openBarrier waits until the child waits at the barrier, calls raise, and lets it go on.
func (b *Files) openBarrier(ctx context.Context, l *sys.ProcessHandle, deadline time.Time) error {
	report, err := b.AwaitReport(deadline)
	if err == nil && !report.Waiting {
		err = errors.New("it does not wait")
	}
	if err != nil {
		return fmt.Errorf("cannot confine the session: %w", err)
	}
	if err := b.raise(ctx, l); err != nil {
		return err
	}
	if _, err := b.barrier.Write([]byte{1}); err != nil {
		return fmt.Errorf("cannot let the session go on: %w", err)
	}
	return nil
}

// AwaitReport returns chatd-shim's next report. The error is a [NotConfinedError] where the report
// says that it could not apply the walls.
func (b *Files) AwaitReport(deadline time.Time) (report plan.Report, err error) {
	if err = ReadJSON(b.Report, deadline, &report); err == nil && report.Error != "" {
		err = &NotConfinedError{Message: report.Error}
	}
	return report, err
}

// AwaitInit returns bubblewrap's pid 1 once the file rules are applied to it and its program may
// go on; timeout bounds each of the two waits. It may return the process together with an error.
func (b *Files) AwaitInit(ctx context.Context, timeout time.Duration) (*sys.ProcessHandle, error) {
	var info struct {
		PID int `json:"child-pid"` // as the host has it
	}
	if err := ReadJSON(b.info, time.Now().Add(timeout), &info); err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	init, err := sys.OpenProcess(sys.Process{PID: info.PID})
	if err != nil {
		return nil, err
	}
	return init, b.openBarrier(ctx, init, time.Now().Add(timeout))
}

// plan gives the child p, the plan of chatd-shim confine.
func (b *Files) plan(p plan.Plan) {
	j, err := json.Marshal(p)
	if err != nil {
		b.Err = errors.Join(b.Err, fmt.Errorf("cannot write the plan: %w", err))
		return
	}
	b.Data("plan", j)
}

// CloseChildEnds closes chatd's copies of the child's descriptors, after the start or instead of
// it.
func (b *Files) CloseChildEnds() { ClosePipes(b.Child...) }

// Close closes every descriptor, of both ends.
func (b *Files) Close() { ClosePipes(append(b.mine, b.Child...)...) }

// ClosePipes closes ends of pipes, those that are not nil, closed or not.
func ClosePipes(all ...*os.File) {
	for _, f := range all {
		if f != nil {
			_ = f.Close() // a second close does no harm
		}
	}
}

// Complaint returns the child's stderr, as the end of an error message.
func (b *Files) Complaint() string {
	if b.Stderr == nil {
		return ""
	}
	buf := make([]byte, 1<<10)
	n, _ := b.Stderr.ReadAt(buf, 0)
	return complaint(string(bytes.TrimRight(buf[:n], "\x00")))
}

// complaint is what a program printed, as the end of an error message.
func complaint(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return ": " + chat.QuoteOutput(text)
}

// ReadJSON reads one JSON value of at most 64 KiB, until deadline, or until that of f if it is zero:
// a process of the chat may hold the pipe.
func ReadJSON(f *os.File, deadline time.Time, v any) (err error) {
	if !deadline.IsZero() {
		err = f.SetReadDeadline(deadline)
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(v)
	}
	if err != nil {
		return fmt.Errorf("cannot read its report: %w", err)
	}
	return nil
}
