package roottest

import (
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestKilledRightAfterCreate: that a chat is ready is written a moment after its create is
// answered. A daemon that is killed before knows the chat's session all the same, and its sleep
// ends it.
func TestKilledRightAfterCreate(t *testing.T) {
	needsRoot(t)
	leaveOrphansToInit(t)
	opt := options(t)
	d := startDaemon(t, opt, "")
	for _, external := range []string{"first", "second", "third"} {
		c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: external})
		must.Do(t, err)
		d.kill()
		d = startDaemon(t, opt, "")
		got, err := d.Get(t.Context(), c.ID)
		expect.True(t, err == nil && got.Awake && got.Phase == chat.Ready,
			"after the kill: awake %t, %s, %v", got.Awake, got.Phase, err)
		if got, err = d.Sleep(t.Context(), c.ID); err != nil || got.Awake {
			t.Errorf("sleep: awake %t, %v", got.Awake, err)
		}
		if left := pidsOf(c.UID); len(left) > 0 {
			t.Errorf("it sleeps, and has processes %v", left)
		}
		must.Do(t, d.Reap(t.Context(), c.ID))
		gone(t, opt, c)
	}
}
