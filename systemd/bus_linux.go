package systemd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/chatd/chatd/chat"
)

// busTime bounds one question to systemd, which answers in milliseconds unless
// it is reloading thousands of units.
const busTime = 30 * time.Second

// Booted reports whether systemd is PID 1 (sd_booted(3)).
func Booted() bool {
	fi, err := os.Lstat("/run/systemd/system")
	return err == nil && fi.IsDir()
}

// Bus is a connection to systemd. The zero value connects when it is first used, and again when
// the connection was lost. It is safe for concurrent use; the caller closes it.
type Bus struct {
	mu   sync.Mutex
	conn *dbus.Conn
}

func (b *Bus) connect(ctx context.Context) (*dbus.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	if b.conn != nil {
		b.conn.Close()
	}
	// Not with ctx: the connection outlives the call that needed it first.
	conn, err := dbus.NewWithContext(context.WithoutCancel(ctx))
	if err != nil {
		b.conn = nil
		return nil, fmt.Errorf("cannot reach systemd: %w", err)
	}
	b.conn = conn
	return conn, nil
}

// Close closes the connection. Units stay as they are.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
}

// Version is systemd's, as "252.39-1~deb12u1".
func (b *Bus) Version(ctx context.Context) (string, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return "", err
	}
	version, err := conn.GetManagerProperty("Version")
	if err != nil {
		return "", fmt.Errorf("cannot ask systemd for its version: %w", err)
	}
	return strings.Trim(version, `"`), nil
}

// job makes a call that starts a job of systemd and waits for the job's result, which is "done" or
// an error.
func (b *Bus) job(
	ctx context.Context, what string,
	ask func(context.Context, *dbus.Conn, chan<- string) (int, error),
) error {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	done := make(chan string, 1)
	if _, err := ask(ctx, conn, done); err != nil {
		return fmt.Errorf("cannot %s: %w", what, named(err))
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("cannot %s: systemd says %s", what, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot %s: systemd did not answer: %w",
			what, errors.Join(chat.ErrBusy, context.Cause(ctx)))
	}
}

// Start starts a unit that systemd knows, and waits until it is up.
func (b *Bus) Start(ctx context.Context, unit string) error {
	return b.job(ctx, "start "+unit,
		func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
			return c.StartUnitContext(ctx, unit, "replace", done)
		})
}

// StartTransient makes a unit with these properties and waits until it is up. It is
// [chat.ErrExists] if there is a unit of that name.
func (b *Bus) StartTransient(ctx context.Context, unit string, props []Property) error {
	return b.job(ctx, "start "+unit,
		func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
			return c.StartTransientUnitContext(ctx, unit, "fail", props, done)
		})
}

// Stop ends a unit and waits until it has ended. It is [chat.ErrNotFound] without such a unit.
func (b *Bus) Stop(ctx context.Context, unit string) error {
	return b.job(ctx, "stop "+unit,
		func(ctx context.Context, c *dbus.Conn, done chan<- string) (int, error) {
			return c.StopUnitContext(ctx, unit, "replace", done)
		})
}

// SetProperties changes a unit until it ends: a daemon-reload writes the values again.
func (b *Bus) SetProperties(unit string, props []Property) error {
	ctx, stop := context.WithTimeout(context.Background(), busTime)
	defer stop()
	conn, err := b.connect(ctx)
	if err == nil {
		err = conn.SetUnitPropertiesContext(ctx, unit, true, props...)
	}
	return named(err)
}

// Invocation is systemd's name for this run of a unit, 32 hex digits (INVOCATION_ID of
// systemd.exec(5)); a unit that was started again has another. It is [chat.ErrNotFound] without
// such a unit.
func (b *Bus) Invocation(unit string) (string, error) {
	ctx, stop := context.WithTimeout(context.Background(), busTime)
	defer stop()
	conn, err := b.connect(ctx)
	if err != nil {
		return "", err
	}
	p, err := conn.GetUnitPropertyContext(ctx, unit, "InvocationID")
	if err != nil {
		return "", fmt.Errorf("cannot ask systemd about %s: %w", unit, named(err))
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
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	conn, err := b.connect(ctx)
	if err == nil {
		err = conn.FreezeUnit(ctx, unit)
	}
	return named(err)
}

// Thaw lets the processes of a unit go on. It is [chat.ErrNotFound] without such a unit.
func (b *Bus) Thaw(ctx context.Context, unit string) error {
	ctx, stop := context.WithTimeout(ctx, busTime)
	defer stop()
	conn, err := b.connect(ctx)
	if err == nil {
		err = conn.ThawUnit(ctx, unit)
	}
	return named(err)
}

// named adds the sentinel of package chat to an answer of systemd's.
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
	}
	return err
}
