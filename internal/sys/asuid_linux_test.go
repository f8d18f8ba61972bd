package sys

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
)

// TestAsUID runs enough goroutines that the main thread is used too: it must stay root's, or the
// whole daemon would appear to belong to the chat.
func TestAsUID(t *testing.T) {
	needsRoot(t)
	const uid = 2013265999
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			err := AsUID(uid, func() error {
				if u, g := unix.Geteuid(), unix.Getegid(); u != uid || g != uid {
					return fmt.Errorf("uid %d gid %d", u, g)
				}
				groups, err := unix.Getgroups()
				if err == nil && len(groups) > 0 {
					err = fmt.Errorf("groups %v", groups)
				}
				return err
			})
			expect.NoError(t, err)
		})
	}
	wg.Wait()
	b, err := os.ReadFile("/proc/self/status")
	expect.True(t, err == nil && strings.Contains(string(b), "\nUid:\t0\t0\t0\t0\n"),
		"the process is not root's any more: %v\n%s", err, b)
}
