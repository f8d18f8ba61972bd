//go:build e2e

package vagrant

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostSurvives: what happens to chatd, or to PID 1, does not happen to the
// sessions. The half line that was typed is still there.
func TestHostSurvives(t *testing.T) {
	c := create(t, "")
	half := chat.Input{Text: "echo half-a-line"}
	input(t, c.ID, chat.Input{Text: "kept=alive", Enter: true})
	input(t, c.ID, half)
	eventually(t, timeout, "the typed text shows", func() bool { return strings.Contains(screen(t, c.ID), half.Text) })
	before := sessionOf(t, c.ID)
	for _, what := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"restart", func(t *testing.T) { restart(t) }},
		{"kill", killDaemon},
		{"upgrade", upgrade},
		{"stop_and_start", func(t *testing.T) { output(t, "systemctl", "stop", service); output(t, "systemctl", "start", service) }},
		{"daemon-reexec", func(t *testing.T) { output(t, "systemctl", "daemon-reexec") }},
	} {
		t.Run(what.name, func(t *testing.T) {
			daemon := mainPID(t)
			what.do(t)
			if what.name != "daemon-reexec" && mainPID(t) == daemon {
				t.Errorf("chatd is the same process: nothing was tried")
			}
			sameSession(t, c, before, half.Text)
		})
	}
	input(t, c.ID, chat.Input{Text: "-$kept", Enter: true})
	eventually(t, timeout, "the shell finishes the line", func() bool {
		return strings.Contains(screen(t, c.ID), "\nhalf-a-line-alive")
	})
}

func sameSession(t *testing.T, c chat.Chat, before session, text string) {
	t.Helper()
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
	expect.True(t, get(t, c.ID).Awake, "chatd does not know the session any more")
	got := screen(t, c.ID)
	expect.True(t, strings.Contains(got, text), "%q is not on the screen any more:\n%s", text, got)
	expect.Equal(t, said(t, c.ID, "echo alive"), "alive", "a run says")
}

func input(t testing.TB, id chat.ID, in chat.Input) {
	t.Helper()
	must.Do(t, asker.Input(bounded(timeout), id, in))
}

func screen(t testing.TB, id chat.ID) string {
	t.Helper()
	return must.Get(asker.Screen(bounded(timeout), id))(t).Text
}

// killDaemon leaves it to systemd to start another.
func killDaemon(t *testing.T) {
	old := mainPID(t)
	must.Do(t, syscall.Kill(old, syscall.SIGKILL))
	first := strconv.Itoa(old) // which systemd may name until it has heard
	eventually(t, timeout, "another chatd runs", func() bool {
		p := properties(t, service, "MainPID", "ActiveState")
		return p["ActiveState"] == "active" && p["MainPID"] != "0" && p["MainPID"] != first
	})
}

// upgrade puts another program in the place of chatd's, as an installer does, and
// the first one back at the end. A byte after the end of an ELF file is nobody's.
func upgrade(t *testing.T) {
	was := must.Get(os.ReadFile(program))(t)
	replace := func(b []byte) {
		must.Do(t, os.WriteFile(program+".new", b, 0o755))
		must.Do(t, os.Rename(program+".new", program))
	}
	t.Cleanup(func() { replace(was) })
	replace(append(was[:len(was):len(was)], '\n'))
	restart(t)
}

// TestHostStop: an operator ends one session by its unit. The chat is asleep
// then, and the next input wakes it.
func TestHostStop(t *testing.T) {
	c := create(t, "")
	before := sessionOf(t, c.ID)
	output(t, "systemctl", "stop", "--", unitOf(c.ID))
	asleepAndWakes(t, c)
	after := sessionOf(t, c.ID)
	expect.True(t, after.invocation != before.invocation, "it is the same invocation: it was never stopped")
}

// asleepAndWakes waits until a chat is asleep, and wakes it by an input.
func asleepAndWakes(t *testing.T, c chat.Chat) {
	t.Helper()
	eventually(t, timeout, "the chat is asleep", func() bool { return !get(t, c.ID).Awake })
	left := pidsOf(t, c.UID)
	expect.True(t, len(left) == 0, "processes are left: %v", left)
	answersInput(t, c.ID, "woken")
}

// answersInput types a command and waits for what it prints.
func answersInput(t *testing.T, id chat.ID, word string) {
	t.Helper()
	input(t, id, chat.Input{Text: "echo " + word + "-$((40+2))", Enter: true})
	eventually(t, timeout, "the input is answered: "+word, func() bool { return strings.Contains(screen(t, id), word+"-42") })
}

// TestHostStrangers: a unit in the chats' slice that chatd did not start, one
// named like a chat's and one not, is held still and shown.
func TestHostStrangers(t *testing.T) {
	c := create(t, "")
	strangers := []string{"chatd-e2e-stranger.service", "chatd-00000000deadbeef.service"}
	frozen := func(unit string) bool { return counter(t, "frozen", cgroupOf(t, unit), "cgroup.events") == 1 }
	for _, unit := range strangers {
		output(t, "systemd-run", "--collect", "--slice="+slice, "--unit="+unit, "sleep", "600")
		t.Cleanup(func() { _, _ = try(timeout, "systemctl", "kill", "--signal=KILL", unit) })
		expect.True(t, !frozen(unit), "%s is frozen before chatd can have seen it", unit)
	}
	restart(t)
	h := host(t)
	for _, unit := range strangers {
		reconciled(t, unit+" is frozen", func() bool { return frozen(unit) })
		expect.True(t, strings.Contains(strings.Join(h.Findings, "\n"), strings.TrimSuffix(unit, ".service")),
			"doctor does not name %s: %q", unit, h.Findings)
	}
	// The control: a chat's own unit is not taken for a stranger.
	expect.True(t, !frozen(unitOf(c.ID)), "the session of a chat is frozen")
	for _, unit := range strangers {
		output(t, "systemctl", "kill", "--signal=KILL", unit)
	}
	reconciled(t, "no finding is left", func() bool { return len(host(t).Findings) == 0 })
}
