package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestTimedOutWhoeverEndsIt: chatd may end between its SIGKILL at a run's timeout and the record of
// the reason. The supervisor records the timeout too.
func TestTimedOutWhoeverEndsIt(t *testing.T) {
	for name, c := range map[string]struct {
		deadline time.Time
		want     bool
	}{"before its time is over": {time.Now().Add(time.Hour), false}, "after": {time.Now().Add(-time.Second), true}} {
		t.Run(name, func(t *testing.T) {
			kill := must.Get(os.Create(filepath.Join(t.TempDir(), "kill")))(t)
			defer kill.Close()
			command := must.Get(os.StartProcess("/bin/sleep", []string{"sleep", "1000"}, &os.ProcAttr{}))(t)
			m := &supervisor{
				spec: plan.SupervisorSpec{Deadline: c.deadline, Last: time.Now().Add(2 * time.Hour)}, pid: command.Pid, kill: kill,
				moved: make(chan struct{}), exited: make(chan struct{}), reaped: make(chan struct{}),
			}
			close(m.moved)
			go m.collect()
			must.Do(t, command.Kill())
			got := m.await()
			expect.True(t, got == c.want && m.status.Signaled(), "timed out: %v, status %v", got, m.status)
		})
	}
}

// TestSteady: a deadline that was read is compared by the monotonic clock.
func TestSteady(t *testing.T) {
	read := time.Now().Add(time.Hour).Round(0)
	got := steady(read)
	expect.True(t, strings.Contains(got.String(), " m=+") && got.Sub(read).Abs() <= time.Minute,
		"%s is %s", read, got)
}
