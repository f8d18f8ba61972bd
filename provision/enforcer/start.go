package enforcer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/safefs"
)

// Start starts the enforcer unless one answers, and has [Client.Follow] hold its groups. With
// systemd the enforcer is a unit of its own; elsewhere it is a child of this daemon, and outlives
// it.
func (c *Client) Start(ctx context.Context) error {
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return errWaiting(ctx)
	}
	if err := c.startOnce(ctx); err != nil {
		return err
	}
	select {
	case c.started <- struct{}{}:
	default: // already signalled
	}
	return nil
}

// startOnce is Start, for one caller at a time.
func (c *Client) startOnce(ctx context.Context) error {
	if c.answers(ctx) {
		return nil
	}
	var ended <-chan struct{} // never, if the enforcer is a unit
	var late <-chan time.Time // only then
	var err error
	if c.opt.Unit {
		late = time.After(unitTimeout)
	} else if ended, err = c.run(); err != nil {
		return err
	}
	for pause := time.Millisecond; err == nil; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-ended: // or another enforcer was started simultaneously
			err = cannotStart(fmt.Errorf("it ended: %s: %w", lastWords(c.logFile()), chat.ErrUnsupported))
		case <-late:
			err = fmt.Errorf("cannot keep file rules: chatd-keeper.service does not answer: "+
				"systemctl start chatd-keeper: %w", chat.ErrUnsupported)
		case <-ctx.Done():
			err = errWaiting(ctx)
		case <-time.After(pause):
		}
		if c.answers(ctx) {
			return nil
		}
	}
	return err
}

// unitTimeout is how long the answer of systemd's unit is waited for.
const unitTimeout = 5 * time.Second

func (c *Client) answers(ctx context.Context) bool {
	_, err := c.probe(ctx, Session{})
	return err == nil
}

// run starts the program; ended is closed when it has ended.
func (c *Client) run() (ended <-chan struct{}, err error) {
	if err := safefs.CheckProgram(c.opt.Program); err != nil {
		return nil, cannotStart(err)
	}
	if err := safefs.MakeRoot(c.opt.Dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, cannotStart(err)
	}
	defer log.Close()
	cmd := exec.Command(c.opt.Program, "--dir", c.opt.Dir, "--idle-end")
	cmd.Args[0] = "chatd-enforce"
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", []string{}, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, cannotStart(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // its log says why it ended
	}()
	return done, nil
}

func (c *Client) logFile() string { return filepath.Join(c.opt.Dir, "log") }

func cannotStart(err error) error {
	return fmt.Errorf("cannot start the enforcer of file rules: %w", err)
}

func errWaiting(ctx context.Context) error {
	return fmt.Errorf("cannot wait for the enforcer of file rules: %w", context.Cause(ctx))
}

// lastWords returns the end of the enforcer's log, for an error.
func lastWords(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return chat.QuoteOutput(string(b[max(0, len(b)-500):]))
}
