package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// squeezed is a daemon whose chatd-root is in a cgroup of its own, which the test bounds.
type squeezed struct {
	*daemon
	t    *testing.T
	opt  provision.Options
	dir  string // of the one controller
	file string // of its bound
	ends int    // how often chatd-root ended, and was started again
}

func squeeze(t *testing.T, controller string, files ...string) *squeezed {
	t.Helper()
	needsNamespaces(t, "this daemon is a service, whose cgroup is systemd's")
	opt := options(t)
	name := opt.Cgroup + "-squeezed"
	s := &squeezed{t: t, opt: opt, dir: filepath.Join("/sys/fs/cgroup", controller, name)}
	if _, err := os.Stat(filepath.Dir(s.dir)); err != nil { // one tree for all, version 2
		s.dir = filepath.Join("/sys/fs/cgroup", name)
	}
	must.Do(t, os.Mkdir(s.dir, 0o755))
	t.Cleanup(func() {
		until(t, s.dir+" is empty", func() bool { return os.Remove(s.dir) == nil })
	})
	for _, file := range files {
		if exists(filepath.Join(s.dir, file))() {
			s.file = filepath.Join(s.dir, file)
		}
	}
	if s.file == "" {
		missing(t, "a cgroup of "+controller)
	}
	s.start()
	return s
}

// start starts chatd, and moves chatd-root into the cgroup.
func (s *squeezed) start() {
	s.daemon = startDaemon(s.t, s.opt, "")
	pid := strconv.Itoa(s.cmd.Process.Pid)
	must.Do(s.t, os.WriteFile(filepath.Join(s.dir, "cgroup.procs"), []byte(pid), 0o600))
}

// bound sets the bound; "max" or -1 is none.
func (s *squeezed) bound(to string) {
	s.t.Helper()
	must.Do(s.t, os.WriteFile(s.file, []byte(to), 0o600))
}

// used reads a number of the cgroup.
func (s *squeezed) used(file string) int {
	s.t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(s.dir, file)))(s.t)
	return must.Get(strconv.Atoi(strings.TrimSpace(string(text))))(s.t)
}

// again starts chatd again if it has ended, as its unit does. One that was ended may take a moment.
func (s *squeezed) again() {
	s.t.Helper()
	until(s.t, "chatd answers or has ended", func() bool {
		return s.isOver() || expect.Err(s.Status(s.t.Context())) == nil
	})
	if s.isOver() {
		s.ends++
		s.start()
	}
}

var brief = chat.RunSpec{Command: "true"}

// TestTasksRunOut: chatd-root can start no more processes (EAGAIN), in the middle of calls. They
// fail and say so, or are done; chatd-root itself may end, which is a kill like any other. When
// there is room again everything goes on, and nothing is half done.
func TestTasksRunOut(t *testing.T) {
	s := squeeze(t, "pids", "pids.max")
	c := must.First(s.Create(t.Context(), chat.Spec{ExternalID: "before"}))(t)
	failed := 0
	for more := range 6 { // so that each step meets the bound
		external, errs := fmt.Sprint("more ", more), []error{}
		for _, call := range []func() error{
			func() error { return expect.Err(s.Create(t.Context(), chat.Spec{ExternalID: external})) },
			func() error { return expect.Err(s.Run(t.Context(), c.ID, brief)) },
			func() error { return expect.Err(s.Sleep(t.Context(), c.ID)) },
			func() error { return expect.Err(s.Wake(t.Context(), c.ID)) },
			func() error { return expect.Err(s.List(t.Context(), chat.Filter{Limit: 10})) },
			func() error { return expect.Err(s.StartRun(t.Context(), c.ID, brief)) },
		} {
			s.bound(strconv.Itoa(s.used("pids.current") + more))
			errs = append(errs, call())
		}
		s.bound("max")
		before := s.ends
		s.again() // a caller hears of the end of chatd-root before its parent does
		for _, err := range errs {
			if err != nil {
				failed++
			}
			says := errors.Is(err, chat.ErrBusy) ||
				err != nil && strings.Contains(err.Error(), "resource temporarily unavailable")
			if err != nil && !says && s.ends == before {
				t.Errorf("with %d tasks more: %v", more, err)
			}
		}
		made := must.First(s.Create(t.Context(), chat.Spec{ExternalID: external}))(t)
		whole(t, s.opt, made)
	}
	expect.True(t, failed != 0, "no call failed: the bound was not met")
	t.Logf("%d calls failed; chatd-root ended %d times", failed, s.ends)
	afterDescriptors(t, s.daemon)
}

// TestMemoryRunsOut: the cgroup of chatd-root has no more memory, in the middle of calls, so that
// the kernel ends chatd-root or the helpers that it starts. Calls fail or are done. When there is
// room again everything goes on, and nothing is half done.
func TestMemoryRunsOut(t *testing.T) {
	s := squeeze(t, "memory", "memory.max", "memory.limit_in_bytes")
	current, free := "memory.current", "max"
	if strings.HasSuffix(s.file, "limit_in_bytes") {
		current, free = "memory.usage_in_bytes", "-1"
	}
	c := must.First(s.Create(t.Context(), chat.Spec{ExternalID: "before"}))(t)
	failed := 0
	for more := range 5 {
		external := fmt.Sprint("more ", more)
		s.bound(strconv.Itoa(s.used(current) + more<<19))
		for _, call := range []func() error{
			func() error { return expect.Err(s.Create(t.Context(), chat.Spec{ExternalID: external})) },
			func() error { return expect.Err(s.Run(t.Context(), c.ID, brief)) },
			func() error { return expect.Err(s.Sleep(t.Context(), c.ID)) },
			func() error { return expect.Err(s.Wake(t.Context(), c.ID)) },
			func() error { return expect.Err(s.StartRun(t.Context(), c.ID, brief)) },
		} {
			if call() != nil {
				failed++
			}
		}
		s.bound(free)
		s.again()
		made := must.First(s.Create(t.Context(), chat.Spec{ExternalID: external}))(t)
		whole(t, s.opt, made)
	}
	expect.True(t, failed != 0, "no call failed: the bound was not met")
	t.Logf("%d calls failed; chatd-root ended %d times", failed, s.ends)
	afterDescriptors(t, s.daemon)
}

// TestDescriptorsRunOut: chatd-root runs out of descriptors (EMFILE) in the middle of calls. They
// fail and say so, or are done; with descriptors again everything goes on.
func TestDescriptorsRunOut(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "before"}))(t)
	failed := 0
	for more := 0; more < 40; more += 2 { // so that each step meets the bound
		was := boundDescriptors(t, d.cmd.Process.Pid, more)
		made, _, err := d.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint("more ", more)})
		_, runErr := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "true"})
		must.Do(t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &was, nil))
		d.waitUp(t)
		for _, err := range []error{err, runErr} {
			if err != nil {
				failed++
			}
			if err != nil && !strings.Contains(err.Error(), "too many open files") {
				t.Errorf("with %d descriptors more: %v", more, err)
			}
		}
		if err == nil {
			whole(t, opt, made)
		}
	}
	expect.True(t, failed != 0, "no call failed: the bound was not met")
	afterDescriptors(t, d)
}

// boundDescriptors leaves a process this many descriptors more than it has, and returns its bound.
func boundDescriptors(t *testing.T, pid, more int) (was unix.Rlimit) {
	t.Helper()
	must.Do(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	open := must.Get(os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)))(t)
	to := unix.Rlimit{Cur: uint64(len(open) + more), Max: was.Max}
	must.Do(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &to, nil))
	return was
}

// afterDescriptors uses each chat that is there, and reaps it.
func afterDescriptors(t *testing.T, d *daemon) {
	t.Helper()
	page := must.Get(d.List(t.Context(), chat.Filter{Limit: 1000}))(t)
	for _, c := range page.Chats {
		if c.Phase == chat.Reaping { // its undo failed too; chatd goes on with it
			untilGone(t, d, c.ID)
			continue
		}
		again, _, err := d.Create(t.Context(), chat.Spec{ExternalID: c.ExternalID})
		if err != nil || again.UID != c.UID || !again.Awake {
			t.Errorf("%s afterwards: %+v, %v", c.ExternalID, again, err)
			continue
		}
		r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo on"})
		expect.True(t, err == nil && r.Stdout == "on\n",
			"a run of %s afterwards: %+v, %v", c.ExternalID, r, err)
		must.Do(t, d.Reap(t.Context(), c.ID))
	}
}

// untilGone waits until a chat is not there any more.
func untilGone(t *testing.T, d *daemon, id chat.ID) {
	t.Helper()
	until(t, "the chat is gone", func() bool {
		_, err := d.Get(t.Context(), id)
		return errors.Is(err, chat.ErrNotFound)
	})
}

// TestNoMappings: mmap(2) of chatd-root returns ENOMEM, under load: the runtime ends it, which is a
// kill like any other. The next one goes on, and nothing is half done.
func TestNoMappings(t *testing.T) {
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
			return d.isOver() || expect.Err(d.Status(t.Context())) == nil
		})
		if d.isOver() {
			ends++
			d = startDaemonOf(t, opt, config, "")
		} else {
			bound.Cur = unix.RLIM_INFINITY
			must.Do(t, unix.Prlimit(pid, unix.RLIMIT_AS, &bound, nil))
		}
		for i := range scarceCallers {
			c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: fmt.Sprint("scarce ", i)}))(t)
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
					err = expect.Err(d.Sleep(ctx, c.ID))
				case 1:
					err = expect.Err(d.StartRun(ctx, c.ID, brief))
				case 2:
					err = expect.Err(d.Wake(ctx, c.ID))
				case 3:
					err = expect.Err(d.Run(ctx, c.ID, brief))
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
