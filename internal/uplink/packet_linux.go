package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// send sends one packet with files, or nothing if ctx ends before the other end has room for it.
func (c *Conn) send(ctx context.Context, p packet, files []*os.File) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(b) > maxPacket || len(files) > maxFiles {
		return fmt.Errorf("a message of %d bytes and %d files: want at most %d and %d",
			len(b), len(files), maxPacket, maxFiles)
	}
	fds, err := sys.FDs(files)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.sending }()
	if err = c.write(ctx, b, oob); errors.Is(err, unix.EPIPE) || err != nil && c.closed.Load() {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// write is the sendmsg(2) of send. The end of ctx moves the write deadline, which belongs to the
// connection and so to the only one that sends.
func (c *Conn) write(ctx context.Context, b, oob []byte) error {
	if err := c.file.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	moved := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(moved)
		_ = c.file.SetWriteDeadline(time.Now()) // an error: it is closed, and the write ends
	})
	var sendErr error
	err := c.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
		return sendErr != unix.EAGAIN
	})
	if !stop() {
		<-moved
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return errors.Join(err, sendErr)
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
		return p, nil, errors.Join(err, CloseFiles(files))
	}
	return p, files, nil
}

// decode reads a packet strictly.
func decode(b []byte) (p packet, err error) {
	if err := chat.Strict(b, &p); err != nil {
		return p, fmt.Errorf("a message is not readable: %w", err)
	}
	if (p.Call == nil) == (p.Answer == nil) {
		return p, errors.New("a message is no call and no answer")
	}
	return p, nil
}
