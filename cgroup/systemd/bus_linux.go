package systemd

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/dbus"

	"github.com/chatd/chatd/chat"
)

// Booted reports whether systemd is PID 1 (sd_booted(3)).
func Booted() bool {
	fi, err := os.Lstat("/run/systemd/system")
	return err == nil && fi.IsDir()
}

// Bus is a connection to systemd. The zero value connects when it is first used, and again when
// the connection was lost or nothing came over it. Every call is bounded, and [chat.ErrBusy] where
// systemd or its bus does not answer. It is safe for concurrent use; the caller closes it.
type Bus struct {
	mu      sync.Mutex
	conn    *dbus.Conn
	dialing *dialing // nil if no connection is being made
}

// Close closes the connection. Units stay as they are.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close()
	}
	b.conn, b.dialing = nil, nil
}

// Version is systemd's, as "252.39-1~deb12u1".
func (b *Bus) Version(ctx context.Context) (string, error) {
	var version string
	err := b.ask(ctx, func(_ context.Context, conn *dbus.Conn) (err error) {
		version, err = conn.GetManagerProperty("Version")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot ask systemd for its version: %w", err)
	}
	return strings.Trim(version, `"`), nil
}

// asks starts a job of systemd over a connection; see [dbus.Conn.StartUnitContext].
type asks func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error)

// job makes a call that starts a job of systemd and waits for the job's result.
func (b *Bus) job(ctx context.Context, call asks) error {
	conn, done, err := b.begin(ctx, call)
	if err != nil {
		return err
	}
	return result(ctx, conn, done)
}

// begin starts a job, and returns what its result comes over.
func (b *Bus) begin(ctx context.Context, call asks) (conn *dbus.Conn, _ <-chan string, err error) {
	done := make(chan string, 1)
	err = b.once(ctx, func(ctx context.Context, c *dbus.Conn) error {
		conn = c
		_, err := call(ctx, c, done)
		return err
	})
	return conn, done, err
}

// Start starts a unit that systemd knows, and waits until it is up.
func (b *Bus) Start(ctx context.Context, unit string) error {
	start := func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
		return c.StartUnitContext(ctx, unit, "replace", done)
	}
	return doing("start", unit,
		repeated(ctx, func(ctx context.Context) error { return b.job(ctx, start) }))
}

// StartTransient makes a unit with these properties and waits until it is up. It is
// [chat.ErrExists] if there is a unit of that name. After [chat.ErrBusy] there may be one.
func (b *Bus) StartTransient(ctx context.Context, unit string, props []Property) error {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	return doing("start", unit, b.job(ctx, transient(unit, props)))
}

func transient(unit string, props []Property) asks {
	return func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
		return c.StartTransientUnitContext(ctx, unit, "fail", props, done)
	}
}

// Stop ends a unit and waits until it has ended. It is [chat.ErrNotFound] without such a unit.
func (b *Bus) Stop(ctx context.Context, unit string) error {
	stop := func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", done)
	}
	return doing("stop", unit,
		repeated(ctx, func(ctx context.Context) error { return b.job(ctx, stop) }))
}

func doing(what, unit string, err error) error {
	if err != nil {
		return fmt.Errorf("cannot %s %s: %w", what, unit, err)
	}
	return nil
}

// SetProperties changes a unit until it ends: a daemon-reload writes the values again.
func (b *Bus) SetProperties(unit string, props []Property) error {
	return doing("change", unit, b.ask(context.Background(),
		func(ctx context.Context, conn *dbus.Conn) error {
			return conn.SetUnitPropertiesContext(ctx, unit, true, props...)
		}))
}

// Invocation is systemd's name for this run of a unit, 32 hex digits (INVOCATION_ID of
// systemd.exec(5)); a unit that was started again has another. It is [chat.ErrNotFound] without
// such a unit.
func (b *Bus) Invocation(unit string) (string, error) {
	var p *dbus.Property
	err := b.ask(context.Background(), func(ctx context.Context, conn *dbus.Conn) (err error) {
		p, err = conn.GetUnitPropertyContext(ctx, unit, "InvocationID")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cannot ask systemd about %s: %w", unit, err)
	}
	id, ok := p.Value.Value().([]byte)
	if !ok || len(id) == 0 {
		return "", fmt.Errorf("cannot find unit %s: %w", unit, chat.ErrNotFound)
	}
	return hex.EncodeToString(id), nil
}

// Freeze stops the processes of a unit where they are, so that its status says frozen. It is
// [chat.ErrNotFound] without such a unit.
func (b *Bus) Freeze(ctx context.Context, unit string) error {
	return doing("freeze", unit, b.ask(ctx, func(ctx context.Context, conn *dbus.Conn) error {
		return conn.FreezeUnit(ctx, unit)
	}))
}

// Thaw lets the processes of a unit go on. It is [chat.ErrNotFound] without such a unit.
func (b *Bus) Thaw(ctx context.Context, unit string) error {
	return doing("thaw", unit, b.ask(ctx, func(ctx context.Context, conn *dbus.Conn) error {
		return conn.ThawUnit(ctx, unit)
	}))
}
