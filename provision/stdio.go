package provision

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/stream"
	"github.com/chatd/chatd/sys"
)

// runStdio is the three streams of a run. They are pipes, given to the chat's
// uid so that /dev/stdout can be opened by name; a socket made here would keep
// root's uid and pass every owner rule.
type runStdio struct {
	stdin, stdinW          *os.File
	outR, outW, errR, errW *os.File
}

// newRunStdio makes them; stdin is what the run reads or, if open is set, a pipe that
// stdinW writes to.
func newRunStdio(uid uint32, stdin []byte, open bool) (*runStdio, error) {
	r := &runStdio{}
	var err error
	if open {
		r.stdin, r.stdinW, err = os.Pipe()
	} else {
		r.stdin, err = sys.MemFile("stdin", stdin)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the streams of a run: %w", err)
	}
	r.outR, r.outW, err = os.Pipe()
	if err == nil {
		r.errR, r.errW, err = os.Pipe()
	}
	for _, f := range []*os.File{r.stdin, r.outW, r.errW} {
		if err == nil {
			err = f.Chown(int(uid), int(uid))
		}
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("cannot make the streams of a run: %w", err)
	}
	return r, nil
}

// join has stderr come with stdout, in the order in which both are printed.
func (r *runStdio) join() error {
	fd, err := unix.FcntlInt(r.outW.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot join the streams of a run: %w", err)
	}
	r.errW.Close()
	r.errW = os.NewFile(uintptr(fd), r.outW.Name())
	return nil
}

func (r *runStdio) closeChildEnds() {
	for _, f := range []**os.File{&r.stdin, &r.outW, &r.errW} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

func (r *runStdio) close() {
	r.closeChildEnds()
	for _, f := range []*os.File{r.stdinW, r.outR, r.errR} {
		if f != nil {
			f.Close()
		}
	}
}

// read takes what the run prints until nobody can print any more, and keeps max bytes of each
// stream.
func (r *runStdio) read(out *entered, max int64) <-chan struct{} {
	out.stdout, out.stderr = *stream.NewCapture(max), *stream.NewCapture(max)
	done := make(chan struct{})
	go func() {
		defer close(done)
		one := make(chan struct{})
		go func() { defer close(one); out.stderr.Take(r.errR, nil) }()
		out.stdout.Take(r.outR, nil)
		<-one
	}()
	return done
}

// readOwn is read for a program of chatd's own, and nil for one whose streams are given away.
func (r *runStdio) readOwn(out *entered, e entry) <-chan struct{} {
	if e.begun != nil {
		return nil
	}
	return r.read(out, ownOutput)
}

// giveAway gives the read ends to whoever reads them in place of chatd-root, if anybody does.
func (r *runStdio) giveAway(e entry) {
	if e.begun != nil {
		e.begun(e.run, r.outR, r.errR)
		r.outR, r.errR = nil, nil
	}
}

// endReads bounds what is left to read. The write ends may outlive the run: a
// descriptor that was sent over a unix socket (SCM_RIGHTS, unix(7)) lives in
// whoever received it, and in the queue of a tmux server that was stopped.
//
// Where the run is not over, what lies in the pipes by now is all that its caller gets.
func (r *runStdio) endReads(over bool) error {
	if r.outR == nil {
		return nil
	}
	end := time.Now().Add(stream.DrainTime)
	if !over {
		end = time.Now().Add(stream.DrainTime / 20)
	}
	if err := errors.Join(r.outR.SetReadDeadline(end), r.errR.SetReadDeadline(end)); err != nil {
		return fmt.Errorf("cannot bound the output of a run: %w", err)
	}
	return nil
}
