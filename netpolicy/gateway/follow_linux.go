package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	// dialTimeout bounds the way to a chatd-egress that runs, and its first answer.
	dialTimeout = 5 * time.Second
	// aliveEvery is how often one that runs is asked for a sign of life. One that does not answer
	// within tellTimeout, and then not to a new connection within dialTimeout, is ended.
	aliveEvery = 3 * time.Second
	// pauses between two attempts to find or start one grow up to this.
	firstPause, maxPause = 20 * time.Millisecond, time.Second
)

// Follow keeps a chatd-egress while a chat needs one, until ctx ends.
func (g *Gateway) Follow(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; {
		if !g.awaitNeed(ctx) {
			return
		}
		began := time.Now()
		err := g.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxPause {
			pause = firstPause // it ran
		}
		if err == nil {
			err = errors.New("it ended; what it carried is cut off")
		}
		err = fmt.Errorf("chatd-egress does not answer, and connections of chats wait: %w", err)
		if g.report(err) {
			g.opt.Log.Error("chatd-egress is started again", "why", err)
		}
		_ = chat.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// awaitNeed returns true when a chat is open, and false when ctx is done.
func (g *Gateway) awaitNeed(ctx context.Context) bool {
	for {
		g.mu.Lock()
		needed := len(g.chats) > 0
		g.mu.Unlock()
		if needed {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-g.wake:
		}
	}
}

// once finds a chatd-egress or starts one, tells it everything, and answers it until it ends.
func (g *Gateway) once(ctx context.Context) error {
	socket, err := g.reach(ctx)
	if err != nil {
		return err
	}
	conn, err := uplink.New(socket)
	if err != nil {
		return err
	}
	defer func() {
		g.mu.Lock()
		g.conn = nil
		g.mu.Unlock()
	}()
	served := make(chan error, 1)
	go func() { served <- conn.Serve(ctx, g.answer) }()
	if err := g.introduce(ctx, conn); err != nil {
		if errors.Is(err, errHung) {
			err = errors.Join(err, g.endHung())
		}
		return errors.Join(err, conn.Close(), <-served)
	}
	return g.attend(ctx, conn, served)
}

// attend tries again what chatd-egress did not carry for, and returns when its connection ends.
func (g *Gateway) attend(ctx context.Context, conn *uplink.Conn, served <-chan error) error {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		var again <-chan time.Time
		lost := g.lost
		if g.report(g.retry(ctx, conn)) {
			pause = firstPause
		}
		if g.said != "" {
			again, lost = time.After(pause), nil
		}
		select {
		case err := <-served:
			return err
		case <-lost:
		case <-again:
		case <-alive.C:
			_ = g.tell(ctx, conn, uplink.Call{Verb: uplink.Connections}) // no answer ends conn
		}
	}
}

// report tells what is wrong, nil if nothing is, and whether it is other than what was told last.
func (g *Gateway) report(err error) bool {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why == g.said {
		return false
	}
	g.said = why
	g.opt.Report(err)
	return true
}

// reach connects to the chatd-egress that listens, and starts one if none does.
func (g *Gateway) reach(ctx context.Context) (*os.File, error) {
	socket, err := g.dial(ctx)
	if err == nil {
		return socket, nil
	}
	if g.opt.Unit {
		return nil, fmt.Errorf("%w: systemctl start chatd-egress.socket", err)
	}
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
		return nil, err
	}
	if err := g.start(); err != nil {
		return nil, err
	}
	return g.dial(ctx)
}

// dial connects to the socket of chatd-egress.
func (g *Gateway) dial(ctx context.Context) (*os.File, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "unixpacket", g.socket())
	if err != nil {
		return nil, fmt.Errorf("cannot reach chatd-egress: %w", err)
	}
	f, err := c.(*net.UnixConn).File()
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("cannot use the socket of chatd-egress: %w", err)
	}
	g.peer = sys.Listener(f)
	return f, nil
}

// errHung: chatd-egress accepts a connection and does not answer.
var errHung = errors.New("it is hung")

// endHung kills the chatd-egress that was dialled last. What it carried is cut off; the sockets of
// sessions stay with this process, for the next one.
func (g *Gateway) endHung() error {
	isEgress := func() bool {
		uid, err := sys.UIDOf(g.peer)
		return err == nil && uid == g.opt.UID
	}
	if g.peer <= 1 {
		return nil
	}
	g.opt.Log.Error("chatd-egress is hung, and is killed", "pid", g.peer)
	if err := sys.Signal(g.peer, unix.SIGKILL, isEgress); err != nil {
		return fmt.Errorf("cannot kill chatd-egress: %w", err)
	}
	return nil
}

// look returns a chat, nil if it is not open, and who is told and asked about it, nil while
// chatd-egress does not answer.
func (g *Gateway) look(id chat.ID) (*openChat, *uplink.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.chats[id], g.conn
}

// chatOf returns an open chat.
func (g *Gateway) chatOf(id chat.ID) (*openChat, error) {
	h, _ := g.look(id)
	if h == nil {
		return nil, fmt.Errorf("cannot act for chat %s: it is not open: %w",
			chat.Quote(string(id)), chat.ErrNotFound)
	}
	return h, nil
}
