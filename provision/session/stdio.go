package session

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
)

// Stdio is the three streams of a run. They are pipes owned by the chat's uid, so that the chat can
// open /dev/stdout by name. A socket made here would keep root's uid and bypass the owner rules.
type Stdio struct {
	// Stdin, OutW and ErrW are the command's ends. The others are chatd's; StdinW may be nil.
	Stdin, StdinW          *os.File
	OutR, OutW, ErrR, ErrW *os.File
}

// NewStdio makes the streams of a command of uid. The command reads stdin or, if open is set, a
// pipe to which StdinW writes.
func NewStdio(uid uint32, stdin []byte, open bool) (*Stdio, error) {
	r := &Stdio{}
	var err error
	if open {
		r.Stdin, r.StdinW, err = os.Pipe()
	} else {
		r.Stdin, err = sys.MemFile("stdin", stdin)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the streams of a run: %w", err)
	}
	r.OutR, r.OutW, err = os.Pipe()
	if err == nil {
		r.ErrR, r.ErrW, err = os.Pipe()
	}
	for _, f := range []*os.File{r.Stdin, r.OutW, r.ErrW} {
		if err == nil {
			err = f.Chown(int(uid), int(uid))
		}
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("cannot make the streams of a run: %w", err)
	}
	return r, nil
}

// Join sends stderr to the pipe of stdout, so that their order is kept.
func (r *Stdio) Join() error {
	fd, err := unix.FcntlInt(r.OutW.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot join the streams of a run: %w", err)
	}
	r.ErrW.Close()
	r.ErrW = os.NewFile(uintptr(fd), r.OutW.Name())
	return nil
}

// CloseChildEnds closes chatd's copies of the command's ends, after its start.
func (r *Stdio) CloseChildEnds() { ClosePipes(r.Stdin, r.OutW, r.ErrW) }

// Close closes the ends that were not given away.
func (r *Stdio) Close() { ClosePipes(r.Stdin, r.StdinW, r.OutR, r.OutW, r.ErrR, r.ErrW) }

// captures are the kept output of two streams while they are read.
type captures struct {
	stdout, stderr *stream.Capture
	done           chan struct{} // closed when no process holds a write end
}

// read reads both streams to their end, and keeps max bytes of each.
func (r *Stdio) read(max int64) *captures {
	c := &captures{stream.NewCapture(max), stream.NewCapture(max), make(chan struct{})}
	go func() {
		defer close(c.done)
		one := make(chan struct{})
		go func() { defer close(one); c.stderr.Take(r.ErrR, nil) }()
		c.stdout.Take(r.OutR, nil)
		<-one
	}()
	return c
}

// into waits for the end of the streams, and puts the kept output into out.
func (c *captures) into(out *CommandResult) {
	if c != nil {
		<-c.done
		out.Stdout, out.Stderr = c.stdout.Bytes(), c.stderr.Text()
	}
}

// giveAway passes the read ends to e.Begun, if it is set: chatd-root does not read them then.
func (r *Stdio) giveAway(e Entry) {
	if e.Begun != nil {
		e.Begun(e.Run, r.OutR, r.ErrR)
		r.OutR, r.ErrR = nil, nil
	}
}

// endReads sets a deadline for the reads. A write end may outlive the run: one that was sent over
// a unix socket (SCM_RIGHTS, unix(7)) lives on in the process that received it, and in the queue
// of a stopped tmux server.
//
// If the run is not over, its caller gets only the bytes that are in the pipes now.
func (r *Stdio) endReads(over bool) error {
	if r.OutR == nil {
		return nil
	}
	end := time.Now().Add(stream.DrainTime)
	if !over {
		end = time.Now().Add(stream.DrainTime / 20)
	}
	if err := errors.Join(r.OutR.SetReadDeadline(end), r.ErrR.SetReadDeadline(end)); err != nil {
		return fmt.Errorf("cannot bound the output of a run: %w", err)
	}
	return nil
}
