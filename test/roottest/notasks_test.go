package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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
	if onHost() {
		t.Skip("this daemon is a service, whose cgroup is systemd's")
	}
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
	n := must.Get(strconv.Atoi(strings.TrimSpace(string(text))))(s.t)
	return n
}

// again starts chatd again if it has ended, as its unit does. One that was ended may take a moment.
func (s *squeezed) again() {
	s.t.Helper()
	until(s.t, "chatd answers or has ended", func() bool {
		return s.isOver() || second(s.Status(s.t.Context())) == nil
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
	needsRoot(t)
	leaveOrphansToInit(t)
	s := squeeze(t, "pids", "pids.max")
	c, _, err := s.Create(t.Context(), chat.Spec{ExternalID: "before"})
	must.Do(t, err)
	failed := 0
	for more := range 6 { // so that each step meets the bound
		external, errs := fmt.Sprint("more ", more), []error{}
		for _, call := range []func() error{
			func() error { return second2(s.Create(t.Context(), chat.Spec{ExternalID: external})) },
			func() error { return second(s.Run(t.Context(), c.ID, brief)) },
			func() error { return second(s.Sleep(t.Context(), c.ID)) },
			func() error { return second(s.Wake(t.Context(), c.ID)) },
			func() error { return second(s.List(t.Context(), chat.Filter{Limit: 10})) },
			func() error { return second(s.StartRun(t.Context(), c.ID, brief)) },
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
		made, _, err := s.Create(t.Context(), chat.Spec{ExternalID: external})
		must.Do(t, err)
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
	needsRoot(t)
	leaveOrphansToInit(t)
	s := squeeze(t, "memory", "memory.max", "memory.limit_in_bytes")
	current, free := "memory.current", "max"
	if strings.HasSuffix(s.file, "limit_in_bytes") {
		current, free = "memory.usage_in_bytes", "-1"
	}
	c, _, err := s.Create(t.Context(), chat.Spec{ExternalID: "before"})
	must.Do(t, err)
	failed := 0
	for more := range 5 {
		external := fmt.Sprint("more ", more)
		s.bound(strconv.Itoa(s.used(current) + more<<19))
		for _, call := range []func() error{
			func() error { return second2(s.Create(t.Context(), chat.Spec{ExternalID: external})) },
			func() error { return second(s.Run(t.Context(), c.ID, brief)) },
			func() error { return second(s.Sleep(t.Context(), c.ID)) },
			func() error { return second(s.Wake(t.Context(), c.ID)) },
			func() error { return second(s.StartRun(t.Context(), c.ID, brief)) },
		} {
			if call() != nil {
				failed++
			}
		}
		s.bound(free)
		s.again()
		made, _, err := s.Create(t.Context(), chat.Spec{ExternalID: external})
		must.Do(t, err)
		whole(t, s.opt, made)
	}
	expect.True(t, failed != 0, "no call failed: the bound was not met")
	t.Logf("%d calls failed; chatd-root ended %d times", failed, s.ends)
	afterDescriptors(t, s.daemon)
}
