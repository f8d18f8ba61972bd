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
	job, err := b.startUnit(ctx, s.Unit, s.properties(int(d.theirs.Fd())))
	if err == nil {
		err = errors.Join(d.theirs.Close(), d.letIn(ctx, s, files, job, prepare))
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// startUnit requests the unit and returns what becomes of its job. It waits for a unit of the same
// name that is about to end.
func (b *Bus) startUnit(ctx context.Context, unit string, props []Property) (<-chan error, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, done, err := b.begin(ctx, transient(unit, props))
		if err == nil {
			ended := make(chan error, 1)
			go func() { ended <- result(ctx, conn, done) }()
			return ended, nil
		}
		if !errors.Is(err, chat.ErrExists) || chat.Sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}

// letIn waits for the first process, prepares it, gives it the files, and waits until
// systemd says that the unit is up.
func (d *Handshake) letIn(
	ctx context.Context, s Session, files []*os.File, ended <-chan error, prepare func(int) error,
) error {
	here := make(chan error, 1)
	go func() { here <- d.await(wordHere, startTime) }()
	select {
	case err := <-here:
		if err != nil {
			return errors.Join(refused(s, <-ended), err)
		}
	case err := <-ended:
		return refused(s, err)
	}
	if prepare != nil {
		if err := prepare(d.first); err != nil {
			return err
		}
	}
	if err := d.hand(files); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return errors.Join(fmt.Errorf("it does not come up: %w", err), d.complaint())
	}
	return nil
}

// refused is systemd's reason for a unit whose first process did not start.
func refused(s Session, err error) error {
	switch {
	case errors.Is(err, chat.ErrBusy): // systemd gave none
		return err
	case err == nil:
		err = errors.New("systemd says done")
	}
	return fmt.Errorf("%w before its first process, %s, was there; "+
		"PAM service %q may refuse it: see journalctl", err, s.Argv[0], s.PAM)
}
