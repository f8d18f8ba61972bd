package enforcer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// While a session needs it, the enforcer is asked for a sign of life every aliveEvery. One that did
// not answer maxSilent times in a row within aliveTimeout is hung or stopped, and all of its
// processes are killed. [Client.Follow] holds its groups and starts another; opens wait until then.
const (
	aliveEvery   = 3 * time.Second
	aliveTimeout = 10 * time.Second
	maxSilent    = 3
)

// watch kills an enforcer that does not answer, until ctx ends.
func (c *Client) watch(ctx context.Context, needed func() bool, every, timeout time.Duration) {
	silent := 0
	chat.Every(ctx, every, func() {
		if !needed() { // an enforcer that is asked would never be idle
			return
		}
		switch err := c.alive(ctx, timeout); {
		case err == nil:
			silent = 0
			c.opt.Report(nil)
		case !errors.Is(err, errSilent):
			silent = 0 // it has ended, and Follow starts another
		default:
			if silent++; silent == maxSilent {
				silent = 0
				err = errors.New("it did not answer, and was killed: " +
					"opens that it decides wait for a new one")
				c.opt.Report(errors.Join(err, c.endHung()))
			}
		}
	})
}

var errSilent = errors.New("it takes orders and answers none")

func (c *Client) alive(ctx context.Context, timeout time.Duration) error {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := c.ask(within, Session{}.order(orders.Probe))
	// EAGAIN: so many orders wait that the socket takes no more.
	if err != nil && ctx.Err() == nil && (within.Err() != nil || errors.Is(err, syscall.EAGAIN)) {
		err = errors.Join(err, errSilent)
	}
	return err
}

// endHung kills all processes of the enforcer: a worker alone would take the place of its holder.
func (c *Client) endHung() error {
	pids, _, err := sys.PidsOf(0)
	for _, pid := range pids {
		if c.isOurs(pid) {
			err = errors.Join(err, sys.Signal(pid, syscall.SIGKILL, func() bool { return c.isOurs(pid) }))
		}
	}
	return err
}

// isOurs reports whether a process of root's is one of the enforcer's. Only one with its name is
// asked for its arguments: a read of those may wait for the process ([sys.PidsOf]).
func (c *Client) isOurs(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || string(name) != "chatd-enforce\n" {
		return false
	}
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(args, []byte("\x00--dir\x00"+c.opt.Dir+"\x00"))
}
