package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
)

// startTime bounds how long a unit's first process may take to say that it is
// there: PAM and an exec.
const startTime = 30 * time.Second

// StartSession starts a session's unit and returns when it is up: PAM let it in, and its first
// process has the files. prepare, unless nil, runs before the files are handed over, with the pid
// of the first process. The unit ends with the handshake, until that is settled.
func (b *Bus) StartSession(
	s Session, files []*os.File, prepare func(first int) error,
) (*Handshake, error) {
	d, err := newHandshake()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), startTime)
	defer stop()
	ended, err := b.startUnit(ctx, s.Unit, s.properties(int(d.theirs.Fd())))
	if err == nil {
		err = errors.Join(d.theirs.Close(), d.letIn(ctx, s, files, ended, prepare))
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// startUnit requests the unit and returns the channel for its job's result. It waits for a
// unit of the same name that is about to end.
func (b *Bus) startUnit(ctx context.Context, unit string, props []Property) (<-chan string, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := b.connect(ctx)
		if err != nil {
			return nil, err
		}
		ended := make(chan string, 1)
		if _, err = conn.StartTransientUnitContext(ctx, unit, "fail", props, ended); err == nil {
			return ended, nil
		}
		if err = named(err); !errors.Is(err, chat.ErrExists) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// letIn waits for the first process, prepares it, gives it the files, and waits until
// systemd says that the unit is up.
func (d *Handshake) letIn(
	ctx context.Context, s Session, files []*os.File, ended <-chan string, prepare func(int) error,
) error {
	here := make(chan error, 1)
	go func() { here <- d.await(wordHere, startTime) }()
	select {
	case err := <-here:
		if err != nil {
			return errors.Join(refusal(ctx, s, ended), err)
		}
	case result := <-ended:
		return refused(s, result)
	}
	if prepare != nil {
		if err := prepare(d.first); err != nil {
			return err
		}
	}
	if err := d.hand(files); err != nil {
		return err
	}
	select {
	case result := <-ended:
		if result != "done" {
			return errors.Join(fmt.Errorf("systemd says %s", result), d.complaint())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("it does not come up: %w", context.Cause(ctx)), d.complaint())
	}
}

// refusal is systemd's reason for a unit whose first process did not start.
func refusal(ctx context.Context, s Session, ended <-chan string) error {
	select {
	case result := <-ended:
		return refused(s, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func refused(s Session, result string) error {
	return fmt.Errorf("systemd says %s before its first process, %s, was there; "+
		"PAM service %q may refuse it: see journalctl", result, s.Argv[0], s.PAM)
}
