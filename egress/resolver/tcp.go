package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// idleTimeout is how long a connection may take for one query, and for one answer.
	idleTimeout = 10 * time.Second
	// maxQueries is how many queries one connection may carry.
	maxQueries = 128
	// maxQuery is the longest query that is read, in bytes.
	maxQuery = 4096
	// maxMessage is the longest message that there can be.
	maxMessage = 65535
)

// ServeTCP answers queries on one TCP connection (RFC 7766), one after the other, and closes it.
// The error is nil when the chat or ctx ends it, when it is idle for 10 s, after 128 queries, and
// after one that gets no answer.
func (r *Responder) ServeTCP(ctx context.Context, c net.Conn) (err error) {
	end := sync.OnceValue(c.Close)
	stop := context.AfterFunc(ctx, func() { _ = end() }) // the error is that of the call below
	defer func() {
		stop()
		err = errors.Join(err, end())
	}()
	for range maxQueries {
		more, err := r.serveOne(ctx, c)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("cannot answer DNS by TCP: %w", err)
		case !more:
			return nil
		}
	}
	return nil
}

// serveOne answers one query. more is false if it gets no answer.
func (r *Responder) serveOne(ctx context.Context, c net.Conn) (more bool, err error) {
	if err := c.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
		return false, err
	}
	query, err := readFrame(c, maxQuery)
	if err != nil {
		return false, err
	}
	answer := r.Answer(ctx, query)
	if answer == nil {
		return false, nil
	}
	if err := c.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
		return false, err
	}
	return true, writeFrame(c, answer)
}

// readFrame reads a message of a TCP connection: two bytes of length, then this many bytes (RFC 1035,
// section 4.2.2).
func readFrame(c io.Reader, limit int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > limit {
		return nil, fmt.Errorf("a message has %d bytes, want at most %d", n, limit)
	}
	msg := make([]byte, n)
	_, err := io.ReadFull(c, msg)
	return msg, err
}

// writeFrame writes the length and the message in one call, so that they are in one packet (RFC
// 7766, section 8).
func writeFrame(c io.Writer, msg []byte) error {
	if len(msg) > maxMessage {
		return fmt.Errorf("a message has %d bytes, want at most %d", len(msg), maxMessage)
	}
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
	return err
}
