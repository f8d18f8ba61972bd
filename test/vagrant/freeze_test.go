//go:build e2e

package vagrant

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostFreeze: an idle chat is frozen below what systemd manages, which takes no notice, and one
// that an operator freezes is frozen for systemd too. Both stay so over a reload of systemd and a
// restart of chatd. What systemctl does by hand, chatd sees, and what it freezes can be stopped.
func TestHostFreeze(t *testing.T) {
	useProfiles(t)
	c := create(t, "freezes")
	dir := cgroupOf(t, unitOf(c.ID))
	is := func(want chat.Frozen, freezer string, still int, path ...string) {
		t.Helper()
		if got := get(t, c.ID); got.Frozen != want || !got.Awake {
			t.Errorf("frozen is %q, want %q, awake %t", got.Frozen, want, got.Awake)
		}
		expect.Equal(t, property(t, unitOf(c.ID), "FreezerState"), freezer, "systemd says")
		events := append(append([]string{dir}, path...), "cgroup.events")
		expect.Equal(t, counter(t, "frozen", events...), still, "the kernel says frozen")
	}
	act := func(what string) {
		t.Helper()
		ctx, cancel := bounded(timeout)
		defer cancel()
		do := map[string]func() (chat.Chat, error){
			"freeze": func() (chat.Chat, error) { return asker.Freeze(ctx, c.ID) },
			"thaw":   func() (chat.Chat, error) { return asker.Thaw(ctx, c.ID) },
		}[what]
		must.Get(do())(t)
	}
	eventually(t, timeout, "the idle chat is frozen", func() bool {
		return get(t, c.ID).Frozen == chat.FrozenUntilUsed
	})
	eventually(t, timeout, "it stands still", func() bool {
		return counter(t, "frozen", dir, "session", "cgroup.events") == 1
	})
	output(t, "systemctl", "daemon-reload")
	restart(t)
	is(chat.FrozenUntilUsed, "running", 1, "session")
	input(t, c.ID, chat.Input{Text: "echo thawed-$((40+2))", Enter: true})
	eventually(t, timeout, "the input thaws it", func() bool {
		return strings.Contains(screen(t, c.ID), "thawed-42")
	})

	act("freeze")
	is(chat.FrozenUntilThawed, "frozen", 1)
	output(t, "systemctl", "daemon-reload")
	restart(t)
	is(chat.FrozenUntilThawed, "frozen", 1)
	act("thaw")
	is("", "running", 0)

	output(t, "systemctl", "freeze", "--", unitOf(c.ID))
	is(chat.FrozenUntilThawed, "frozen", 1)
	output(t, "systemctl", "thaw", "--", unitOf(c.ID))
	is("", "running", 0)

	act("freeze")
	if out, err := try(timeout, "systemctl", "stop", "--", unitOf(c.ID)); err != nil { // 257 refuses it
		expect.True(t, strings.Contains(out+err.Error(), "frozen unit"), "stop: %s %v", out, err)
		output(t, "systemctl", "thaw", "--", unitOf(c.ID))
		output(t, "systemctl", "stop", "--", unitOf(c.ID))
	}
	eventually(t, timeout, "the chat is asleep", func() bool { return !get(t, c.ID).Awake })
	if left := pidsOf(t, c.UID); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	input(t, c.ID, chat.Input{Text: "echo woken-$((40+2))", Enter: true})
	eventually(t, timeout, "the input wakes it", func() bool {
		return strings.Contains(screen(t, c.ID), "woken-42")
	})
	act("freeze")
	must.Do(t, reap(c.ID))
}
