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
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
)

// ServerOptions configures a [Server]. All fields are required.
type ServerOptions struct {
	Root verbs.Root
	// NameOf resolves a uid of the host.
	NameOf func(uid uint32) (string, error)
	// Log receives violations of the protocol by the front.
	Log *slog.Logger
}

// Server is chatd-root's end of one front's control socket.
type Server struct {
	opt     ServerOptions
	control *link
	slots   chan struct{} // one for each call
	large   chan struct{} // one for each request of more than one packet
	lists   chan struct{} // one for each list that the front has not taken yet
	unread  atomic.Int64  // bytes of answers that the front has not taken yet
	calls   sync.WaitGroup
	closing atomic.Bool
	answers atomic.Bool
	untaken atomic.Bool // the front was told its settings, and has not taken them yet
}

// NewServer takes chatd-root's end of a control socket.
func NewServer(f *os.File, opt ServerOptions) (*Server, error) {
	l, err := controlLink(f)
	return &Server{opt: opt, control: l, slots: make(chan struct{}, maxCalls),
		large: make(chan struct{}, maxLarge), lists: make(chan struct{}, maxLists)}, err
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
	s.untaken.Store(true)
	return s.control.send(settings, p)
}

// Took reports whether the front has answered the last [Server.Tell].
func (s *Server) Took() bool { return !s.untaken.Load() }

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

// Serve answers calls until the front closes the control socket, which returns nil, or sends an
// invalid packet on it. It then cancels the remaining calls; Wait waits for them.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		err := s.control.recvFDs(func(k kind, p []byte, fds []int) error {
			switch empty := len(p) == 0 && len(fds) == 0; {
			case k == ready && empty:
				s.answers.Store(true)
				return nil
			case k == alive && empty:
				s.untaken.Store(false)
				return nil
			case k != newCall, len(p) > 0, len(fds) != 1:
				return errors.Join(fmt.Errorf("cannot use a packet %q of %d bytes and %d descriptors on the control socket", k, len(p), len(fds)), sys.CloseAll(fds))
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

// Wait waits at most most until every call has ended. Call it after Serve has returned.
func (s *Server) Wait(timeout time.Duration) error {
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(timeout):
		return fmt.Errorf("cannot wait longer than %s for calls of the front to end: %w", timeout,
			chat.ErrBusy)
	}
}

// accept begins the call on socket fd. Any other descriptor is an error of the front and is never
// used: reading it could block forever, or have an effect.
func (s *Server) accept(ctx context.Context, fd int) error {
	for _, o := range []struct{ option, want int }{{unix.SO_DOMAIN, unix.AF_UNIX},
		{unix.SO_TYPE, unix.SOCK_SEQPACKET}, {unix.SO_ACCEPTCONN, 0}} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option); err != nil || got != o.want {
			return errors.Join(fmt.Errorf("cannot use a descriptor: it is no socket of a call"), err,
				unix.Close(fd))
		}
	}
	select {
	case s.slots <- struct{}{}:
	default: // the front sees the end of the socket
		s.opt.Log.Warn("refused a call of the front: too many are under way", "limit", maxCalls)
		return unix.Close(fd)
	}
	l, err := newLink(fd)
	if err != nil {
		<-s.slots
		return err
	}
	s.calls.Go(func() {
		defer func() { <-s.slots }()
		defer func() { _ = l.close() }() // nothing is left to be sent
		s.serve(ctx, &call{link: l, Root: s.opt.Root, s: s, written: make(chan kind, 1)})
	})
	return nil
}

// call is one call, in chatd-root.
type call struct {
	*link
	message
	verbs.Root
	s       *Server
	listed  bool      // it holds one of the server's lists
	written chan kind // end or broken, from the front
	tools   tools
}

// serve reads the request, does it, and answers.
func (s *Server) serve(ctx context.Context, c *call) {
	// A request that is still incomplete when the front ends is dropped.
	defer context.AfterFunc(ctx, func() { _ = c.hearBy(time.Unix(1, 0)) })()
	result, err := s.work(ctx, c)
	defer func() {
		if c.listed {
			<-s.lists
		}
	}()
	last, p := answerEnd, []byte(nil)
	if err == nil {
		p, err = encode(result)
	}
	size := int64(len(p))
	defer func() { s.unread.Add(-size) }()
	if s.unread.Add(size) > maxUnread {
		err = fmt.Errorf("cannot answer the front: it has not read %d bytes: %w", maxUnread, chat.ErrBusy)
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
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watch(cancel)
	}()
	defer func() {
		_ = c.hearBy(time.Unix(1, 0)) // the watcher waits for the front
		<-watched
	}()
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("cannot finish: panic: %v\n%s", cause, debug.Stack())
		}
	}()
	if c.Verb == listVerb {
		s.lists <- struct{}{}
		c.listed = true
	}
	return do(ctx, c, c.Chat, c.args)
}

// listVerb is the verb whose answers are bounded in number, see maxLists.
const listVerb = "list"

// watch handles the front's packets after its request, and cancels the call when the front hangs up
// or violates the protocol.
func (c *call) watch(cancel context.CancelFunc) {
	defer cancel()
	parts := parts{large: c.s.large}
	defer parts.drop()
	for {
		err := c.recv(func(k kind, p []byte) error {
			switch k {
			case end, broken:
				select {
				case c.written <- k:
				default: // it was said before
				}
				return nil
			case toolPart, toolSays:
				return parts.add(p, k == toolSays, c.hear)
			}
			return fmt.Errorf("cannot use a packet %q in a call", k)
		})
		if err != nil {
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

// tellFiles passes files.
func (c *call) tellFiles(k kind, p []byte, files ...*os.File) error {
	fds, err := sys.FDs(files)
	if err != nil {
		return err
	}
	return errors.Join(c.f.SetWriteDeadline(time.Now().Add(packetTime)), c.sendFDs(k, p, fds...))
}

// frame sends one value of a stream: a page of a log, or a schedule.
func (c *call) frame(v any) error {
	p, err := encode(v)
	if err == nil {
		err = c.tellAll(framePart, frame, p)
	}
	return err
}
