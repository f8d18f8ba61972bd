package roottest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestNoMappings: mmap(2) of chatd-root returns ENOMEM, under load: the runtime ends it, which is a
// kill like any other. The next one goes on, and nothing is half done.
func TestNoMappings(t *testing.T) {
	needsRoot(t)
	leaveOrphansToInit(t)
	opt := options(t)
	config := configFile(t, opt)
	d := startDaemonOf(t, opt, config, "")
	ends, failed := 0, 0
	for more := range 6 {
		pid := d.cmd.Process.Pid
		bound := unix.Rlimit{Cur: addressSpace(t, pid) + uint64(more)<<17, Max: unix.RLIM_INFINITY}
		must.Do(t, unix.Prlimit(pid, unix.RLIMIT_AS, &bound, nil))
		failed += useWhileScarce(t.Context(), d, more)
		until(t, "chatd answers or has ended", func() bool {
			return d.isOver() || second(d.Status(t.Context())) == nil
		})
		if d.isOver() {
			ends++
			d = startDaemonOf(t, opt, config, "")
		} else {
			bound.Cur = unix.RLIM_INFINITY
			must.Do(t, unix.Prlimit(pid, unix.RLIMIT_AS, &bound, nil))
		}
		for i := range scarceCallers {
			c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint("scarce ", i)})
			must.Do(t, err)
			whole(t, opt, c)
		}
	}
	text := must.Get(os.ReadFile(d.log))(t)
	said := strings.Count(string(text), "fatal error: runtime: cannot allocate memory") +
		strings.Count(string(text), "fatal error: runtime: out of memory")
	expect.True(t, ends != 0 && said != 0,
		"chatd-root ended %d times, %d of them for want of memory: nothing was tried", ends, said)
	t.Logf("%d calls failed; chatd-root ended %d times", failed, ends)
	afterDescriptors(t, d)
}

const scarceCallers = 8

// useWhileScarce makes calls for a few chats, and returns how many failed.
func useWhileScarce(ctx context.Context, d *daemon, round int) (failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range scarceCallers {
		wg.Go(func() {
			c, _, err := d.Create(ctx, chat.Spec{ExternalID: fmt.Sprint("scarce ", i)})
			for n := 0; n < 4 && err == nil; n++ {
				switch (round + i + n) % 4 {
				case 0:
					err = second(d.Sleep(ctx, c.ID))
				case 1:
					err = second(d.StartRun(ctx, c.ID, brief))
				case 2:
					err = second(d.Wake(ctx, c.ID))
				case 3:
					err = second(d.Run(ctx, c.ID, brief))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
			}
		})
	}
	wg.Wait()
	return failed
}

// addressSpace is what a process has mapped, in bytes.
func addressSpace(t *testing.T, pid int) uint64 {
	t.Helper()
	var pages uint64
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)))(t)
	must.Get(fmt.Sscan(string(text), &pages))(t)
	return pages * uint64(os.Getpagesize())
}
