package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/termsafe"
)

// attachedRun is a run whose streams and signals are this program's.
type attachedRun struct {
	c    *client.Client
	id   chat.ID
	spec chat.RunSpec
	in   io.Reader
	// end ends the run: its caller goes away.
	end   context.CancelFunc
	begun chan string // the run's id
	over  chan struct{}
	// goesOn: the end of input is not passed on.
	goesOn bool
	// gaveUp: it was interrupted, and ended the run.
	gaveUp atomic.Bool
}

// runAttached runs a command as ssh does.
func runAttached(c *cli.Context, id chat.ID, spec chat.RunSpec) error {
	// Signals that otherwise end this program go to the run.
	ctx, end := context.WithCancel(context.WithoutCancel(c.Context))
	defer end()
	a := &attachedRun{c: daemon(c), id: id, in: c.App.Reader, end: end, begun: make(chan string, 1),
		over: make(chan struct{})}
	spec.Started = func(run string) { a.begun <- run }
	a.spec = spec
	restore, err := a.raw()
	if err != nil {
		return err
	}
	received := make(chan os.Signal, 16)
	signal.Notify(received, forwarded(spec.TTY != nil)...)
	defer signal.Stop(received)
	go a.serve(ctx, received)
	out := streams{to: map[string]io.Writer{chat.Stdout: a.screen(c.App.Writer),
		chat.Stderr: c.App.ErrWriter}, cancel: end}
	res, err := a.c.RunTo(ctx, id, spec, out.write)
	close(a.over)
	if spec.TTY != nil && printer.IsTerminal(c.App.Writer) {
		fmt.Fprint(c.App.Writer, termsafe.Reset)
	}
	if err := restore(); err != nil {
		return err
	}
	if out.failed != nil {
		return out.failed
	}
	if a.gaveUp.Load() {
		return &exitError{128 + signals["SIGINT"]}
	}
	if err != nil {
		return err
	}
	return writeEnd(c, res)
}

// serve sends the run what it is to read, and the signals, as soon as it has an id.
func (a *attachedRun) serve(ctx context.Context, received <-chan os.Signal) {
	var run string
	select {
	case run = <-a.begun:
	case <-received:
		a.giveUp()
		return
	case <-a.over:
		return
	}
	if a.spec.OpenStdin {
		go a.sendInput(ctx, run)
	}
	a.forward(ctx, run, received)
}

func (a *attachedRun) giveUp() {
	a.gaveUp.Store(true)
	a.end()
}

// sendInput sends standard input as it comes and closes it then. A run that ends, or reads no
// more, takes no more: that is not an error.
func (a *attachedRun) sendInput(ctx context.Context, run string) {
	err := a.c.WriteStdin(ctx, a.id, run, io.NopCloser(a.in), !a.goesOn)
	if err == nil || ctx.Err() != nil || errors.Is(err, chat.ErrWrongPhase) ||
		errors.Is(err, chat.ErrNotFound) {
		return
	}
	select {
	case <-a.over:
	default:
		fmt.Fprintf(os.Stderr, "chatd: cannot pass standard input on: %s\n", printer.Escape(err.Error()))
	}
}

// forward passes signals on. A second INT, once the grace is over, ends the run.
func (a *attachedRun) forward(ctx context.Context, run string, received <-chan os.Signal) {
	var first time.Time
	for {
		var s os.Signal
		select {
		case <-a.over:
			return
		case s = <-received:
		}
		name := signalWord(s)
		if name == "INT" {
			if !first.IsZero() && time.Since(first) >= a.spec.Grace.D() {
				a.giveUp()
				return
			}
			if first.IsZero() {
				first = time.Now()
			}
		}
		send := chat.RunSignal{Signal: name}
		if name == "WINCH" {
			send.TTY = terminalSize()
		}
		if err := a.c.SignalRun(ctx, a.id, run, send); err != nil && !errors.Is(err, chat.ErrWrongPhase) &&
			!errors.Is(err, chat.ErrNotFound) {
			fmt.Fprintf(os.Stderr, "chatd: cannot pass SIG%s on: %s\r\n", name, printer.Escape(err.Error()))
		}
	}
}

// raw has the terminal in front of this program pass on every key, where the run has one of its
// own.
func (a *attachedRun) raw() (restore func() error, err error) {
	f, ok := a.in.(*os.File)
	if a.spec.TTY == nil || !ok || !term.IsTerminal(int(f.Fd())) {
		return func() error { return nil }, nil
	}
	was, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot set the terminal: %w", err)
	}
	return func() error {
		if err := term.Restore(int(f.Fd()), was); err != nil {
			return fmt.Errorf("cannot set the terminal back: %w", err)
		}
		return nil
	}, nil
}

// screen is where the output of a run with a terminal goes: to a terminal through package termsafe,
// which lets text, colours and moves of the cursor pass, and nothing else that a terminal obeys.
func (a *attachedRun) screen(w io.Writer) io.Writer {
	if a.spec.TTY == nil || !printer.IsTerminal(w) {
		return w
	}
	return termsafe.NewWriter(w, termsafe.Full)
}

// terminalSize is the size of the terminal in front of this program; 24 by 80 where there is none.
func terminalSize() *chat.TTY {
	for _, f := range []*os.File{os.Stdout, os.Stdin, os.Stderr} {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && rows > 0 && cols > 0 {
			return &chat.TTY{Rows: min(rows, chat.MaxTTY), Cols: min(cols, chat.MaxTTY)}
		}
	}
	return &chat.TTY{Rows: 24, Cols: 80}
}

// signalWord is a signal's name without SIG.
func signalWord(s os.Signal) string {
	for name, known := range forwardedNames() {
		if known == s {
			return name
		}
	}
	return strings.ToUpper(s.String())
}

// forwarded are the signals that are passed on; a change of size only to a terminal.
func forwarded(tty bool) []os.Signal {
	var all []os.Signal
	for name, s := range forwardedNames() {
		if tty || name != "WINCH" {
			all = append(all, s)
		}
	}
	return all
}
