package egress

import (
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// maxTurned is how many connections of a chat are answered 503 at a time, which are not
	// counted: with TLS each takes at worst [streamsCost].
	maxTurned     = 4
	turnedTimeout = 10 * time.Second // of one answer, with the wait for it
)

// enterTimeout is how long a connection of HTTP waits for its part of the memory. Tests set it.
var enterTimeout = headerTimeout

// busy is why a connection of HTTP is answered 503.
type busy struct{ error }

// Unwrap returns the reason.
func (b busy) Unwrap() error { return b.error }

// answerBusy answers the request of a client of plain HTTP with 503 where err is [busy], and
// returns err.
func (c connection) answerBusy(client net.Conn, err error) error {
	if _, ok := err.(busy); !ok {
		return err
	}
	timeout := time.NewTimer(turnedTimeout)
	defer timeout.Stop()
	select {
	case c.n.turned <- struct{}{}:
		defer func() { <-c.n.turned }()
	case <-timeout.C:
		return err
	case <-c.ctx.Done():
		return err
	}
	// Where one of these fails, the connection is reset, as it is for every error.
	_ = client.SetDeadline(time.Now().Add(turnedTimeout))
	if _, readErr := client.Read(make([]byte, 4<<10)); readErr != nil {
		return err
	}
	why := fmt.Sprintf("cannot pass on a request: %s\n", text(err))
	_, _ = fmt.Fprintf(client, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\n"+
		"Connection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
		len(why), why)
	if half, ok := client.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(client, maxHeader)) // until the client has read it
	return err
}
