package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

const (
	// maxPacket bounds a message, in bytes: some thousand destinations.
	maxPacket = 128 << 10
	// maxFiles is how many descriptors a message may pass.
	maxFiles = 4
	// maxCalls is how many calls of the other end are answered at once. More wait in the socket.
	maxCalls = 256
)

// Handler answers a call of the other end. It owns files, and gives up those that it returns.
type Handler func(ctx context.Context, c Call, files []*os.File) ([]*os.File, Answer)

// Conn is one end of a connection. Its methods are safe for concurrent use.
type Conn struct {
	file *os.File
	raw  syscall.RawConn
	// closed: this end closed it, of which the raw connection has no error to compare with.
	closed atomic.Bool

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan received // nil once the other end has gone
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
	return &Conn{file: socket, raw: raw, waiting: map[uint64]chan received{}}, nil
}

// Pair returns the two ends of a connection.
func Pair() (a, b *os.File, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX,
		unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "uplink"), os.NewFile(uintptr(p[1]), "uplink"), nil
}

// Close ends the connection. Serve returns, and calls fail with [ErrGone].
func (c *Conn) Close() error {
	c.closed.Store(true)
	return c.file.Close()
}

// Serve answers the other end's calls with handle, several at a time, and passes answers to the
// callers of [Conn.Call], until the connection ends or ctx does. It returns nil if one of the
// ends closed it. A message that violates the protocol is an error. When Serve returns, the
// connection
// is closed and every handle has returned.
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
			// One that has gone wants no answer.
			_ = errors.Join(c.send(packet{ID: p.ID, Answer: &a}, out), closeFiles(out))
		})
	}
}

// hangUp closes the connection, and fails the calls that wait.
func (c *Conn) hangUp() {
	_ = c.Close() // it may be closed
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

// deliver passes an answer to its caller. One that has given up leaves its number behind, so that
// an answer to a number that was never used is a violation.
func (c *Conn) deliver(id uint64, r received) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || id > c.last {
		return errors.Join(fmt.Errorf("cannot use answer %d: there was no such call",
			id), closeFiles(r.files))
	}
	w, ok := c.waiting[id]
	if !ok {
		return closeFiles(r.files)
	}
	delete(c.waiting, id)
	w <- r
	return nil
}

// Call asks the other end and waits for its answer, with the files that came with it, which the
// caller closes. It passes files, which stay the caller's. An answer that is an error is returned
// as one.
func (c *Conn) Call(ctx context.Context, call Call, files ...*os.File) (Answer, []*os.File, error) {
	w := make(chan received, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return Answer{}, nil, fmt.Errorf("cannot ask for %s: %w", call.Verb, ErrGone)
	}
	c.last++
	id := c.last
	c.waiting[id] = w
	c.mu.Unlock()
	if err := c.send(packet{ID: id, Call: &call}, files); err != nil {
		c.forget(id, w)
		return Answer{}, nil, fmt.Errorf("cannot ask for %s: %w", call.Verb, err)
	}
	select {
	case r, ok := <-w:
		switch {
		case !ok:
			return Answer{}, nil, fmt.Errorf("cannot ask for %s: %w", call.Verb, ErrGone)
		case r.answer.Error != "":
			return r.answer, nil, errors.Join(errors.New(r.answer.Error), closeFiles(r.files))
		}
		return r.answer, r.files, nil
	case <-ctx.Done():
		c.forget(id, w)
		return Answer{}, nil, fmt.Errorf("cannot wait for %s: %w", call.Verb, context.Cause(ctx))
	}
}

// forget gives a call up. Its answer may just have come.
func (c *Conn) forget(id uint64, w chan received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
	select {
	case r := <-w:
		_ = closeFiles(r.files) // nobody wants them
	default:
	}
}

// send sends one packet with files.
func (c *Conn) send(p packet, files []*os.File) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(b) > maxPacket || len(files) > maxFiles {
		return fmt.Errorf("a message of %d bytes and %d files: want at most %d and %d",
			len(b), len(files), maxPacket, maxFiles)
	}
	oob, err := rights(files)
	if err != nil {
		return err
	}
	var sendErr error
	err = c.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
		return sendErr != unix.EAGAIN
	})
	if err = errors.Join(err, sendErr); errors.Is(err, unix.EPIPE) || err != nil &&
		c.closed.Load() {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// rights is the control message that passes files. It leaves them non-blocking, as [os.File.Fd]
// would not.
func rights(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return nil, err
		}
	}
	return unix.UnixRights(fds...), nil
}

var buffers = sync.Pool{New: func() any { return new([maxPacket + 1]byte) }}

// receive returns the next packet, or [io.EOF].
func (c *Conn) receive() (p packet, files []*os.File, err error) {
	var b *[maxPacket + 1]byte
	var oob [64]byte // more than maxFiles; the kernel closes the rest (unix(7))
	var n, oobn, flags int
	var recvErr error
	err = c.raw.Read(func(fd uintptr) bool {
		b = buffers.Get().(*[maxPacket + 1]byte) // an idle reader holds none
		n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), b[:], oob[:], unix.MSG_CMSG_CLOEXEC)
		if recvErr == unix.EAGAIN {
			buffers.Put(b)
			return false
		}
		return true
	})
	if err != nil {
		return p, nil, err
	}
	defer buffers.Put(b)
	if recvErr != nil {
		return p, nil, recvErr
	}
	fds, err := sys.Rights(oob[:oobn])
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "passed"))
	}
	switch {
	case err != nil || n > maxPacket || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 ||
		len(files) > maxFiles:
		err = errors.Join(errors.New("a message is too large, or brings too much"), err)
	case n == 0:
		err = io.EOF
	default:
		p, err = decode(b[:n])
	}
	if err != nil {
		return p, nil, errors.Join(err, closeFiles(files))
	}
	return p, files, nil
}

// decode reads a packet strictly.
func decode(b []byte) (p packet, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("a message is not readable: %w", err)
	}
	if d.More() || (p.Call == nil) == (p.Answer == nil) {
		return p, errors.New("a message is no call and no answer")
	}
	return p, nil
}

func closeFiles(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
