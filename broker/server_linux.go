package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// ServerOptions say what a front may ask of. All of them are needed.
type ServerOptions struct {
	Root Root
	// NameOf resolves a uid of the host.
	NameOf func(uid uint32) (string, error)
	// Log takes what a front did that no sound one does.
	Log *slog.Logger
}

// Server is chatd-root's end of one front's control socket.
type Server struct {
	opt     ServerOptions
	control *link
	places  chan struct{} // one for each call
	large   chan struct{} // one for each request of more than one packet
	calls   sync.WaitGroup
	closing atomic.Bool
	answers atomic.Bool
}

// NewServer takes chatd-root's end of a control socket.
func NewServer(f *os.File, opt ServerOptions) (*Server, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot use the control socket: %w", err)
	}
	l, err := newLink(fd)
	return &Server{opt: opt, control: l, places: make(chan struct{}, maxCalls), large: make(chan struct{}, maxLarge)}, err
}

// Tell sends the front its settings.
func (s *Server) Tell(now Settings) error {
	p, err := encode(now)
	if err == nil && len(p) >= packetSize {
		err = fmt.Errorf("cannot tell the front its settings: %d bytes", len(p))
	}
	if err != nil {
		return err
	}
	return s.control.send(settings, p)
}

// Answers reports whether the front has said that it answers callers.
func (s *Server) Answers() bool { return s.answers.Load() }

// Close ends Serve and every call.
func (s *Server) Close() error {
	s.closing.Store(true)
	if err := s.control.close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// Serve answers calls until the front closes the control socket, which is nil, or sends on it
// what no front sends. It cancels the calls that are left then; Wait waits for them.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		err := s.control.recvFDs(func(k kind, p []byte, fds []int) error {
			if k == ready && len(p) == 0 && len(fds) == 0 {
				s.answers.Store(true)
				return nil
			}
			if k != newCall || len(p) > 0 || len(fds) != 1 {
				return errors.Join(fmt.Errorf("cannot use a packet %q of %d bytes and %d descriptors on the control socket", k, len(p), len(fds)), closeAll(fds))
			}
			return s.accept(ctx, fds[0])
		})
		switch {
		case errors.Is(err, io.EOF), err != nil && s.closing.Load():
			return nil
		case err != nil:
			return err
		}
	}
}

// Wait waits until every call has ended, and not longer than most. It is for a server whose
// Serve has returned.
func (s *Server) Wait(most time.Duration) error {
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(most):
		return fmt.Errorf("cannot wait longer than %s for calls of the front to end: %w", most, chat.ErrBusy)
	}
}

// accept begins the call whose socket fd is. A descriptor of anything else is the front's
// fault, and never used: reading it could wait for ever, or have an effect.
func (s *Server) accept(ctx context.Context, fd int) error {
	for _, o := range []struct{ option, want int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_SEQPACKET}, {unix.SO_ACCEPTCONN, 0}} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option); err != nil || got != o.want {
			return errors.Join(fmt.Errorf("cannot use a descriptor: it is no socket of a call"), err, unix.Close(fd))
		}
	}
	select {
	case s.places <- struct{}{}:
	default: // the front reads that it was cut off
		s.opt.Log.Warn("refused a call of the front: too many at once", "limit", maxCalls)
		return unix.Close(fd)
	}
	l, err := newLink(fd)
	if err != nil {
		<-s.places
		return err
	}
	s.calls.Go(func() {
		defer func() { <-s.places }()
		defer func() { _ = l.close() }() // nothing is left to be sent
		s.serve(ctx, &call{link: l})
	})
	return nil
}

// call is one call, in chatd-root.
type call struct {
	*link
	message
	content content
}

// content is what comes in data packets, once somebody reads it.
type content struct {
	*io.PipeReader
	ask func()
}

// Read asks the front for the content when it is first called.
func (c content) Read(p []byte) (int, error) {
	c.ask()
	return c.PipeReader.Read(p)
}

// serve reads the request, does it, and answers.
func (s *Server) serve(ctx context.Context, c *call) {
	// A request that is still arriving when the front ends is dropped.
	defer context.AfterFunc(ctx, func() { _ = c.hearBy(time.Unix(1, 0)) })()
	result, err := s.work(ctx, c)
	last, p := answerEnd, []byte(nil)
	if err == nil {
		p, err = encode(result)
	}
	if err != nil {
		last = failed
		if p, err = encode(failureOf(err)); err != nil {
			s.opt.Log.Error("cannot answer the front", "verb", c.Verb, "why", err)
			return
		}
	}
	if err := c.tellAll(answer, last, p); err != nil {
		s.opt.Log.Debug("the front does not take an answer", "verb", c.Verb, "why", err)
	}
}

func (s *Server) work(ctx context.Context, c *call) (result any, err error) {
	do, err := s.read(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(chat.WithCaller(ctx, c.Caller))
	defer cancel()
	r, w := io.Pipe()
	c.content = content{r, sync.OnceFunc(func() { _ = c.tell(want, nil) })} // who is gone is seen by watch
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(w, cancel)
	}()
	defer func() {
		// The watcher may be handing over content, or waiting for the front.
		_ = r.CloseWithError(errOver)
		_ = c.hearBy(time.Unix(1, 0))
		<-watched
	}()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("cannot finish: panic: %v\n%s", cause, debug.Stack())
		}
	}()
	if c.Verb == nameOf {
		var uid uint32
		if err := decode(c.Args, &uid); err != nil {
			return nil, err
		}
		return s.opt.NameOf(uid)
	}
	return do(ctx, s.opt.Root, c)
}

// nameOf is the one verb that is no method of [Root].
const nameOf = "name_of"

var errOver = errors.New("the call is over")

// watch takes content, and cancels the call when the front hangs up or breaks the order.
func (c *call) watch(w *io.PipeWriter, cancel context.CancelFunc) {
	defer cancel()
	for {
		err := c.recv(func(k kind, p []byte) error {
			switch k {
			case data:
				_, err := w.Write(p)
				if errors.Is(err, errOver) || errors.Is(err, io.ErrClosedPipe) {
					err = nil // nobody wants the rest
				}
				return err
			case end:
				return w.Close()
			case broken:
				return w.CloseWithError(fmt.Errorf("the front could not read the content: %w", chat.ErrInvalid))
			}
			return fmt.Errorf("cannot use a packet %q in a call", k)
		})
		if err != nil {
			_ = w.CloseWithError(fmt.Errorf("the caller went away: %w", context.Canceled))
			return
		}
	}
}

// tell sends one packet, which the front must take in time.
func (c *call) tell(k kind, p []byte) error {
	return errors.Join(c.f.SetWriteDeadline(time.Now().Add(packetTime)), c.send(k, p))
}

// tellAll sends p in packets of kind part and a last one.
func (c *call) tellAll(part, last kind, p []byte) error {
	return errors.Join(c.f.SetWriteDeadline(time.Now().Add(packetTime)), c.sendAll(part, last, p))
}

// tellFiles passes files of a run.
func (c *call) tellFiles(k kind, run string, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) }) // not Fd: that makes it block
		}
		if err != nil {
			return fmt.Errorf("cannot pass the streams of run %s: %w", run, err)
		}
	}
	return errors.Join(c.f.SetWriteDeadline(time.Now().Add(packetTime)), c.sendFDs(k, []byte(run), fds...))
}
