package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPacket bounds a message, in bytes: some thousand destinations.
	maxPacket = 128 << 10
	// maxFiles is how many descriptors a message may pass.
	maxFiles = 4
	// maxCalls is how many calls may be unanswered in each direction. An end that sends more is
	// not heard until one is answered.
	maxCalls = 256
	// answerTimeout bounds how long an answer waits for the other end to read. One that does not
	// is given up: it would keep answers, and calls behind them, for ever.
	answerTimeout = 5 * time.Second
)

// Handler answers a call of the other end. It owns files, and gives up those that it returns.
type Handler func(ctx context.Context, c Call, files []*os.File) ([]*os.File, Answer)

// Conn is one end of a connection. Its methods are safe for concurrent use.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	// closed: this end closed it, of which the raw connection has no error to compare with.
	closed atomic.Bool
	// sending has an element while a packet is sent, calls one for each unanswered call.
	sending, calls chan struct{}
	answerTimeout  time.Duration
	gone           chan struct{} // closed when Serve has ended

	mu   sync.Mutex
	last uint64
	// waiting are the unanswered calls by number, with nil for one that its caller has given up.
	// It is nil once the other end has gone.
	waiting map[uint64]chan received
}

// received is an answer with the files that came with it.
type received struct {
	answer Answer
	files  []*os.File
}

// New takes a connected SOCK_SEQPACKET socket. Nothing is read before [Conn.Serve].
func New(socket *os.File) (*Conn, error) {
	raw, err := socket.SyscallConn()
	if err == nil {
		var setErr error
		err = raw.Control(func(fd uintptr) { setErr = unix.SetNonblock(int(fd), true) })
		err = errors.Join(err, setErr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot use a socket: %w", err), socket.Close())
	}
	return &Conn{
		file: socket, raw: raw, waiting: map[uint64]chan received{},
		sending: make(chan struct{}, 1), calls: make(chan struct{}, maxCalls),
		answerTimeout: answerTimeout, gone: make(chan struct{}),
	}, nil
}

// Close ends the connection. Serve returns, and calls fail with [ErrGone].
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.file.Close()
}

// Serve answers the other end's calls with handle, several at a time, and passes answers to the
// callers of [Conn.Call], until the connection ends or ctx does. It returns nil if one of the
// ends closed it. A message that violates the protocol is an error. When Serve returns, the
// connection is closed and every handle has returned.
func (c *Conn) Serve(ctx context.Context, handle Handler) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	defer c.hangUp()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	slots := make(chan struct{}, maxCalls)
	for {
		p, files, err := c.receive()
		switch {
		case errors.Is(err, io.EOF), err != nil && c.closed.Load():
			return nil
		case err != nil:
			return fmt.Errorf("cannot hear the other process: %w", err)
		case p.Answer != nil:
			if err := c.deliver(p.ID, received{*p.Answer, files}); err != nil {
				return err
			}
			continue
		}
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			out, a := handle(ctx, *p.Call, files)
			c.answer(ctx, packet{ID: p.ID, Answer: &a}, out)
		})
	}
}

// answer sends an answer, and closes its files. An end that does not read it in time is given up;
// one that has gone wants no answer.
func (c *Conn) answer(ctx context.Context, p packet, files []*os.File) {
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	if err := c.send(ctx, p, files); err != nil {
		_ = c.Close() // the error is that of every call from now on
	}
	_ = CloseFiles(files)
}

// hangUp closes the connection, and fails the calls that wait.
func (c *Conn) hangUp() {
	_ = c.Close() // it may be closed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = nil
	close(c.gone)
}

// deliver passes an answer to its caller, if that still waits. An answer to no call is a violation.
func (c *Conn) deliver(id uint64, r received) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.waiting[id]
	if !ok {
		return errors.Join(fmt.Errorf("cannot use answer %d: there is no such call",
			id), CloseFiles(r.files))
	}
	delete(c.waiting, id)
	<-c.calls
	if w == nil {
		return CloseFiles(r.files)
	}
	w <- r
	return nil
}

// Call asks the other end and waits for its answer, with the files that came with it, which the
// caller closes. It passes files, which stay the caller's. An answer that is an error is returned
// as one. When ctx ends Call returns, whether or not the other end reads; if the question was not
// sent by then, it never is.
func (c *Conn) Call(ctx context.Context, call Call, files ...*os.File) (Answer, []*os.File, error) {
	id, w, err := c.begin(ctx)
	if err == nil {
		if err = c.send(ctx, packet{ID: id, Call: &call}, files); err != nil {
			c.unsent(id)
		}
	}
	if err != nil {
		return Answer{}, nil, fmt.Errorf("cannot ask for %s: %w", call.Verb, err)
	}
	select {
	case r := <-w:
		if r.answer.Error != "" {
			return r.answer, nil, errors.Join(errors.New(r.answer.Error), CloseFiles(r.files))
		}
		return r.answer, r.files, nil
	case <-c.gone:
		c.forget(id, w)
		return Answer{}, nil, fmt.Errorf("cannot ask for %s: %w", call.Verb, ErrGone)
	case <-ctx.Done():
		c.forget(id, w)
		return Answer{}, nil, fmt.Errorf("cannot wait for %s: %w", call.Verb, context.Cause(ctx))
	}
}

// begin gives a call its number and a place among the unanswered ones. Both ends hold to the bound:
// otherwise each could stop reading the other's answers until its own are read.
func (c *Conn) begin(ctx context.Context) (uint64, chan received, error) {
	select {
	case c.calls <- struct{}{}:
	case <-c.gone:
		return 0, nil, ErrGone
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		return 0, nil, ErrGone
	}
	w := make(chan received, 1)
	c.last++
	c.waiting[c.last] = w
	return c.last, w, nil
}

// unsent takes back a call that the other end knows nothing of.
func (c *Conn) unsent(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.waiting[id]; ok {
		delete(c.waiting, id)
		<-c.calls
	}
}

// forget gives a call up. Its answer may just have come; if not, its number waits for it.
func (c *Conn) forget(id uint64, w chan received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.waiting[id]; ok {
		c.waiting[id] = nil
	}
	select {
	case r := <-w:
		_ = CloseFiles(r.files) // nobody wants them
	default:
	}
}

// CloseFiles closes the files that a call or an answer brought; nil stands for none.
func CloseFiles(files []*os.File) (err error) {
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
