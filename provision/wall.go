package provision

import (
	"context"
	"time"

	"github.com/chatd/chatd/netpolicy"
	"github.com/chatd/chatd/provision/account"
)

// wallTimeout is how long [Wall] waits for the xtables lock. It is longer than a
// daemon's calls wait: at boot nobody comes after it to try again.
const wallTimeout = time.Minute

// Wall makes sure that packet rules stand for every uid of Options.UIDs, the only
// option it reads: without a daemon nothing is allowed, beside one its policies
// stay. It needs no directory and no network. The error is [chat.ErrInvalid]
// for a range that meets uids of the host and [chat.ErrUnsupported] where a
// program is missing.
func Wall(ctx context.Context, opt Options) error {
	if err := account.CheckRange(opt.UIDs.Low, opt.UIDs.High); err != nil {
		return err
	}
	table, err := netpolicy.Open(netpolicy.Options{
		Range: netpolicy.Range(opt.UIDs), ProbeUID: newManager(opt).probeUID(), LockWait: wallTimeout,
	})
	if err != nil {
		return err
	}
	return table.Raise(ctx)
}
