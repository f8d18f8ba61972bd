package enforcer

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ours are the processes of the client's enforcer.
func ours(t *testing.T, c *Client) []int {
	t.Helper()
	all, _, err := sys.PidsOf(0)
	must.Do(t, err)
	return slices.DeleteFunc(all, func(pid int) bool { return !c.isOurs(pid) })
}

// TestStoppedEnforcerIsReplaced: an enforcer that is stopped is killed and said to be, and another
// one starts; one of another directory, and one that nobody needs, is left alone.
func TestStoppedEnforcerIsReplaced(t *testing.T) {
	c, other := starter(t, t.TempDir(), ""), starter(t, t.TempDir(), "")
	must.Do(t, c.Start(t.Context()), other.Start(t.Context()))
	was, left := ours(t, c), ours(t, other)
	must.True(t, len(was) == 1 && len(left) == 1, "the enforcers are %v and %v", was, left)
	reports := make(chan error, 1000)
	c.opt.Report = func(err error) { reports <- err }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	needed := make(chan bool, 1)
	needed <- false
	go c.watch(ctx, func() bool {
		n := <-needed
		needed <- n
		return n
	}, time.Millisecond, 100*time.Millisecond)
	for _, pid := range append(slices.Clone(was), left...) {
		must.Do(t, unix.Kill(pid, unix.SIGSTOP))
	}
	t.Cleanup(func() { _ = unix.Kill(left[0], unix.SIGCONT) })
	time.Sleep(300 * time.Millisecond)
	now := ours(t, c)
	expect.True(t, slices.Equal(now, was), "that nobody needs is replaced: %v, was %v", now, was)
	<-needed
	needed <- true
	err := <-reports
	expect.True(t, err != nil, "one that is stopped answers")
	until(t, "it is gone", func() bool { return len(ours(t, c)) == 0 })
	must.Do(t, os.Remove(filepath.Join(c.opt.Dir, orders.Socket)), c.Start(t.Context())) // as its holder does
	until(t, "another one answers", func() bool { return <-reports == nil })
	if now := ours(t, other); !slices.Equal(now, left) {
		t.Errorf("the other's is %v, was %v", now, left)
	}
}
