package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/chatd/chatd/chat"
)

// The bounds of waits for systemd; tests shorten them.
var (
	// busTime bounds one question, which systemd answers in milliseconds unless it is reloading
	// thousands of units.
	busTime = 30 * time.Second
	// dialTime bounds the making of a connection: a bus that is stopped takes it and says nothing.
	dialTime = 10 * time.Second
)

// tries is how often a question is asked that may be repeated, while the connection is lost: a bus
// that restarts, or a systemd that executes itself again, is back within a second or two.
const tries = 6

// errLost is the error of a call whose connection ended, or whose other end has left the bus. It is
// unknown whether systemd did what it was asked for.
var errLost = fmt.Errorf("the connection to systemd was lost: %w", chat.ErrBusy)

// dialing is a connection that is being made, for all who wait for it.
type dialing struct {
	done chan struct{} // closed when the others are set
	conn *dbus.Conn
	err  error
}

// connect returns the connection, or makes one. Nobody waits for longer than ctx, nor for the calls
// of others.
func (b *Bus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	if b.conn != nil && b.conn.Connected() {
		defer b.mu.Unlock()
		return b.conn, nil
	}
	d := b.dialing
	if d == nil {
		if b.conn != nil {
			b.conn.Close()
			b.conn = nil
		}
		d = &dialing{done: make(chan struct{})}
		b.dialing = d
		go b.dial(d)
	}
	b.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, silent(ctx)
	}
}

// dial asks the bus, and PID 1 itself where there is none: its own socket needs no bus.
func (b *Bus) dial(d *dialing) {
	var err error
	if d.conn, err = bounded(dbus.NewSystemConnectionContext); err != nil {
		var perr error
		if d.conn, perr = bounded(dbus.NewSystemdConnectionContext); perr != nil {
			d.err = fmt.Errorf("cannot reach systemd: %w", errors.Join(chat.ErrBusy, err, perr))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dialing == d {
		b.conn, b.dialing = d.conn, nil
	} else if d.conn != nil { // closed meanwhile
		d.conn.Close()
	}
	close(d.done)
}

// bounded makes a connection within dialTime. The context outlives that: it is the connection's.
func bounded(open func(context.Context) (*dbus.Conn, error)) (*dbus.Conn, error) {
	ctx, end := context.WithCancel(context.Background())
	bound := time.AfterFunc(dialTime, end)
	conn, err := open(ctx)
	if bound.Stop() && err == nil {
		return conn, nil
	}
	if err == nil {
		conn.Close()
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("its bus does not answer: %w", errors.Join(context.DeadlineExceeded, err))
	}
	end()
	return nil, err
}

// ask makes a call within busTime that may be repeated.
func (b *Bus) ask(ctx context.Context, call func(context.Context, *dbus.Conn) error) error {
	return repeated(ctx, func(ctx context.Context) error { return b.once(ctx, call) })
}

// repeated does something within busTime, and again where the connection was lost.
func repeated(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	for i, pause := 1, 50*time.Millisecond; ; i, pause = i+1, 2*pause {
		err := do(ctx)
		if i == tries || !errors.Is(err, errLost) || chat.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// once makes a call, in a context that ends.
func (b *Bus) once(ctx context.Context, call func(context.Context, *dbus.Conn) error) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	// Not all calls of the library take a context. And a connection on which nothing is answered is
	// dead for all: the next call makes another.
	giveUp := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			conn.Close()
		}
	})
	err = call(ctx, conn)
	giveUp()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return silent(ctx)
	case !conn.Connected() || isBroken(err):
		conn.Close() // the library may not have seen yet that the other end is gone
		return errors.Join(errLost, err)
	}
	return named(err)
}

// isBroken reports whether err is of the connection, and no answer.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, godbus.ErrClosed)
}

func silent(ctx context.Context) error {
	return fmt.Errorf("systemd did not answer: %w", errors.Join(chat.ErrBusy, context.Cause(ctx)))
}

// result waits for what becomes of a job. The library tells nobody that its connection has ended.
func result(ctx context.Context, conn *dbus.Conn, done <-chan string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for conn.Connected() {
		select {
		case said := <-done:
			if said != "done" {
				return fmt.Errorf("systemd says %s", said)
			}
			return nil
		case <-ctx.Done():
			return silent(ctx)
		case <-tick.C:
		}
	}
	return errLost
}

// named adds the sentinel of package chat to an answer of systemd's, or of the bus in its place.
func named(err error) error {
	var e godbus.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Name {
	case "org.freedesktop.systemd1.NoSuchUnit":
		return errors.Join(chat.ErrNotFound, err)
	case "org.freedesktop.systemd1.UnitExists":
		return errors.Join(chat.ErrExists, err)
	case "org.freedesktop.DBus.Error.LimitsExceeded":
		return errors.Join(chat.ErrBusy, err)
	case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown",
		"org.freedesktop.DBus.Error.NameHasNoOwner", "org.freedesktop.DBus.Error.Disconnected":
		return errors.Join(errLost, err)
	}
	return err
}
