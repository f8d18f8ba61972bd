package enforcer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// followPause is between two attempts to find the enforcer, or to start it again.
const followPause = time.Second

// Follow holds the enforcer's fanotify groups beside it until ctx ends. When all of its processes
// end simultaneously, opens in the sessions wait, and Follow starts the enforcer again, which
// answers them. needed reports whether a session has rules that the enforcer enforces.
func (c *Client) Follow(ctx context.Context, needed func() bool) {
	held := &groups{dir: c.opt.Dir}
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(ctx, needed, aliveEvery, aliveTimeout) })
	defer watching.Wait()
	said := ""
	for ctx.Err() == nil {
		err := held.follow(ctx)
		if errors.Is(err, errNoEnforcer) {
			err = c.goOn(ctx, held, needed)
		}
		if err == nil || ctx.Err() != nil {
			said = ""
			continue
		}
		if why := err.Error(); why != said {
			said = why
			c.opt.Log.Error("the enforcer is not back; opens that it must decide wait", "why", why)
		}
		_ = chat.Sleep(ctx, followPause)
	}
	if err := held.close(); err != nil {
		c.opt.Log.Error("cannot release the enforcer's groups", "why", err)
	}
}

// goOn starts the enforcer again if it is needed. Otherwise it drops the groups, whose queue would
// grow with every name that is made, and waits until an enforcer was started.
func (c *Client) goOn(ctx context.Context, held *groups, needed func() bool) error {
	if needed() {
		err := c.Start(ctx)
		if err == nil {
			c.opt.Log.Warn("no process of the enforcer of file rules was left; " +
				"opens waited until it was back")
		}
		return err
	}
	err := held.drop()
	select {
	case <-c.started:
	case <-ctx.Done():
	}
	return err
}
