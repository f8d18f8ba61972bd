package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
)

// Client is the front's end of the control socket. [verbs.Root] says what its methods do.
type Client struct {
	verbs.Calls
	control *link
}

var _ verbs.Root = (*Client)(nil)

// NewClient takes the front's end of a control socket.
func NewClient(f *os.File) (*Client, error) {
	l, err := controlLink(f)
	c := &Client{control: l}
	c.Calls = c.call
	return c, err
}

// Settings passes the settings from chatd-root to took, the first and each change, until the
// control socket or chatd-root ends.
func (c *Client) Settings(took func(Settings) error) error {
	for {
		err := c.control.recv(func(k kind, p []byte) error {
			var s Settings
			if k != settings {
				return fmt.Errorf("cannot use a packet %q on the control socket", k)
			}
			if err := decode(p, &s); err != nil {
				return err
			}
			err := took(s)
			_ = c.control.send(alive, nil) // where it cannot be sent, the next read says why
			return err
		})
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Ready tells chatd-root that the front answers callers from now on.
func (c *Client) Ready() error { return c.control.send(ready, nil) }

// hooks handle the packets of a call beside its request and its answer.
type hooks struct {
	// on handles packets before the answer. Its error ends the call, and is the call's error.
	on func(k kind, p []byte) error
	// streams takes, and must close, a run's descriptors. Without it the call accepts none: the
	// kernel closes them.
	streams func(run string, fds [2]int) error
	// stdin takes the standard input of a run, likewise, and may not wait.
	stdin func(l *link, to stream.Input)
	// talks speak with file tools, likewise.
	talks *talks
}

func (c *Client) call(ctx context.Context, verb string, id chat.ID, args, answer any) error {
	return c.callWith(ctx, verb, id, args, answer, hooks{})
}

// callWith calls a verb whose packets h handles.
func callWith[A, R any](
	ctx context.Context, c *Client, v verbs.Verb[A, R], id chat.ID, a A, h hooks,
) (r R, err error) {
	err = c.callWith(ctx, string(v), id, a, &r, h)
	return r, err
}

func (c *Client) callWith(ctx context.Context, verb string, id chat.ID, args, answer any, h hooks) error {
	l, err := c.open()
	if err != nil {
		return err
	}
	defer func() { _ = l.close() }() // the call is over either way
	raw, err := encode(args)
	if err != nil {
		return err
	}
	m, err := encode(message{Verb: verb, Caller: chat.CallerFrom(ctx), Chat: id, Args: raw})
	if err != nil {
		return err
	}
	if err := l.sendAll(request, requestEnd, m); err != nil {
		return gone(err)
	}
	// The link is shut down and not closed, so that the call's last answer still arrives.
	defer context.AfterFunc(ctx, func() { _ = l.hangUp() })()
	err = hear(h.receiver(l), answer, func(k kind, p []byte) error {
		switch {
		case h.talks != nil && k == toolStop:
			return h.talks.receive(p)
		case h.on != nil:
			return h.on(k, p)
		}
		return fmt.Errorf("cannot use a packet %q: it was not asked for", k)
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// open begins a call: chatd-root has the other end.
func (c *Client) open() (*link, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, gone(err)
	}
	err = c.control.sendFDs(newCall, nil, theirs)
	if err = errors.Join(err, unix.Close(theirs)); err != nil {
		return nil, errors.Join(gone(err), unix.Close(ours))
	}
	return newLink(ours)
}

// gone is a caller's error when chatd-root no longer answers.
func gone(err error) error { return fmt.Errorf("%w: %w: %w", verbs.ErrUnreached, err, chat.ErrBusy) }

// receiver is [link.recv], or its equivalent for a call that passes descriptors.
type receiver = func(use func(k kind, p []byte) error) error

// receiver accepts descriptors with one packet, or with one packet for each file tool. It closes
// all others, and they are an error.
func (h hooks) receiver(l *link) receiver {
	if h.streams == nil && h.stdin == nil && h.talks == nil {
		return l.recv
	}
	taken := false
	return func(use func(kind, []byte) error) error {
		return l.recvFDs(func(k kind, p []byte, fds []int) error {
			switch input := k == stdin || k == stdinTTY; {
			case k == streams && len(fds) == 2 && h.streams != nil && !taken:
				taken = true
				return h.streams(string(p), [2]int(fds))
			case input && len(fds) == 1 && h.stdin != nil && !taken:
				taken = true
				f := os.NewFile(uintptr(fds[0]), "stdin") // deadlines can cancel its writes
				h.stdin(l, stream.Input{W: f, Framed: k == stdinTTY})
				return nil
			case k == tool && len(fds) == 2 && h.talks != nil:
				return h.talks.begin(l, p, [2]int(fds))
			case k == streams || k == tool || input || len(fds) > 0:
				return errors.Join(fmt.Errorf("cannot use a packet %q with %d descriptors here", k, len(fds)),
					sys.CloseAll(fds))
			}
			return use(k, p)
		})
	}
}

// hear reads until the answer, and decodes it; into is nil for an answer that says nothing. If
// chatd-root closed the call before it read everything, read(2) first fails with ECONNRESET and
// then returns the queued packets.
func hear(recv receiver, into any, on func(kind, []byte) error) error {
	if into == nil {
		into = &none{}
	}
	var all []byte
	for reset := false; ; {
		var last kind
		err := recv(func(k kind, p []byte) error {
			switch last = k; k {
			case answer, answerEnd, failed:
				if len(all)+len(p) > maxAnswer {
					return fmt.Errorf("cannot use an answer of more than %d bytes", maxAnswer)
				}
				all = append(all, p...)
				return nil
			}
			return on(k, p)
		})
		switch {
		case errors.Is(err, unix.ECONNRESET) && !reset:
			reset = true
		case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			return gone(errors.New("the call was cut off"))
		case err != nil:
			return err
		case last == failed:
			var f failure
			if err := decode(all, &f); err != nil {
				return err
			}
			return f.err()
		case last == answerEnd:
			return decode(all, into)
		}
	}
}
