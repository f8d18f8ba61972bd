package netpolicy

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
)

// TestClaim: of one network namespace one process has the rules, until it ends; another is told
// its pid. A flush of all rules takes nothing away.
func TestClaim(t *testing.T) {
	needsRoot(t)
	expect.NoError(t, sys.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		first, err := Claim()
		if err != nil {
			return err
		}
		if out, err := execute(t.Context(), "", "nft", "flush", "ruleset"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		second, err := Claim()
		if !errors.Is(err, chat.ErrBusy) ||
			!strings.Contains(err.Error(), fmt.Sprintf("process %d has", os.Getpid())) {
			return fmt.Errorf("the second: %v, %w", second, err)
		}
		if err := first.Close(); err != nil {
			return err
		}
		third, err := Claim()
		if err != nil {
			return fmt.Errorf("after the first: %w", err)
		}
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		other, err := Claim()
		if err != nil {
			return fmt.Errorf("in another namespace: %w", err)
		}
		return errors.Join(third.Close(), other.Close())
	}))
}
