//go:build e2e

package vagrant

import (
	"errors"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostBusSilent: the bus is stopped for a while, and takes calls without an answer. A create
// ends as busy, or is done by PID 1's own socket; sessions do not notice. When the bus goes on,
// so does everything.
func TestHostBusSilent(t *testing.T) {
	c := create(t, "")
	before := sessionOf(t, c.ID)
	signal := func(name string) {
		output(t, "systemctl", "kill", "--kill-who=main", "-s", name, "dbus.service")
	}
	t.Cleanup(func() { signal("CONT") })
	signal("STOP")
	spec := chat.Spec{ExternalID: external(t)}
	if _, err := ask(spec); err != nil && !errors.Is(err, chat.ErrBusy) {
		t.Errorf("a create while the bus is silent: %v, want %v", err, chat.ErrBusy)
	}
	signal("CONT")
	made := must.Get(ask(spec))(t)
	expect.Equal(t, said(t, made.ID, "echo on"), "on", "afterwards a run says")
	must.Do(t, reap(made.ID))
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
}

// TestHostReexecUnderCreates: PID 1 executes itself again, again and again, while chats are made.
// Each create is done, or is busy and done when it is made again.
func TestHostReexecUnderCreates(t *testing.T) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for pause := time.Second; ; {
			select {
			case <-stop:
				return
			case <-time.After(pause):
				begin := time.Now()
				out, err := try(timeout, "systemctl", "daemon-reexec")
				expect.True(t, err == nil, "daemon-reexec: %v: %s", err, out)
				// Twice as long as it took, or a slow machine does nothing else.
				pause = max(time.Second, 2*time.Since(begin))
			}
		}
	}()
	var specs []chat.Spec
	for range 10 {
		spec := chat.Spec{ExternalID: external(t)}
		specs = append(specs, spec)
		_, err := ask(spec)
		if err != nil && !errors.Is(err, chat.ErrBusy) {
			t.Errorf("a create: %v, want %v", err, chat.ErrBusy)
		}
	}
	close(stop)
	<-ended
	for _, spec := range specs {
		var c chat.Chat
		eventually(t, timeout, "a create is done afterwards", func() (done bool) {
			var err error
			c, err = ask(spec)
			if err != nil {
				t.Logf("a create afterwards: %v", err) // what failed may still be removed
			}
			return err == nil
		})
		expect.Equal(t, said(t, c.ID, "echo on"), "on", "a run says")
		must.Do(t, reap(c.ID))
	}
}
