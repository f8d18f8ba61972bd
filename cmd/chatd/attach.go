package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
)

// detachKey is Ctrl-\, which few programs want.
const detachKey = 0x1c

func attach(c *cli.Context, id chat.ID) error {
	in, ok := c.App.Reader.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return chat.Invalid("cannot attach: standard input must be a terminal; chatd screen, log and send need none")
	}
	ctx, end := context.WithCancel(context.WithoutCancel(c.Context))
	defer end()
	spec := chat.Attach{TTY: *terminalSize(), ReadOnly: c.Bool("read-only")}
	a := &attachedRun{c: daemon(c), id: id, in: in, end: end, begun: make(chan string, 1),
		over: make(chan struct{}), goesOn: true,
		spec: chat.RunSpec{TTY: &spec.TTY, OpenStdin: true}}
	spec.Started = func(run string) { a.begun <- run }
	restore, err := a.raw()
	if err != nil {
		return err
	}
	keys := &detaching{in: in, silent: spec.ReadOnly, end: end}
	a.in = keys
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded(true)...)
	defer signal.Stop(signals)
	go a.serve(ctx, signals)
	screen := termsafe.NewWriter(c.App.Writer, termsafe.Full)
	out := streams{to: map[string]io.Writer{chat.Stdout: screen, chat.Stderr: screen}, cancel: end}
	_, err = a.c.Attach(ctx, id, spec, out.write)
	close(a.over)
	fmt.Fprint(c.App.Writer, termsafe.Reset)
	return errors.Join(restore(), out.failed, a.farewell(c, keys.left.Load(), err))
}

// farewell says why the terminal is the operator's own again.
func (a *attachedRun) farewell(c *cli.Context, left bool, err error) error {
	switch {
	case left || a.gaveUp.Load():
		fmt.Fprintf(c.App.ErrWriter, "chatd: let go of %s; it goes on\n", a.id.User())
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("cannot stay attached to chat %s: chatd has gone away; the chat goes on, attach again: %w", a.id, chat.ErrBusy)
	case err != nil:
		return err
	}
	now, err := a.c.Get(c.Context, a.id)
	switch {
	case err == nil && now.Awake:
		fmt.Fprintf(c.App.ErrWriter, "chatd: the terminal of %s has let go; it goes on\n", a.id.User())
	case err == nil || errors.Is(err, chat.ErrNotFound):
		fmt.Fprintf(c.App.ErrWriter, "chatd: the session of %s has ended\n", a.id.User())
	default:
		return err
	}
	return nil
}

// detaching reads keys up to the one that lets go.
type detaching struct {
	in     io.Reader
	silent bool // drop all others
	left   atomic.Bool
	end    context.CancelFunc
}

// Read returns what was typed before Ctrl-\, and then the end.
func (d *detaching) Read(p []byte) (int, error) {
	for {
		if d.left.Load() {
			return 0, io.EOF
		}
		n, err := d.in.Read(p)
		if i := bytes.IndexByte(p[:n], detachKey); i >= 0 {
			d.left.Store(true)
			d.end()
			n, err = i, io.EOF
		}
		if d.silent {
			n = 0
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
