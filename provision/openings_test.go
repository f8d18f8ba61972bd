package provision

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/verdict"
)

// TestOpeningsAreSaid: a guard that is off and a PATH of every program are one line each, and a
// profile without either is none; after a reload it is the guard of the new config that counts.
func TestOpeningsAreSaid(t *testing.T) {
	on := chat.DefaultGuard()
	profiles := map[string]chat.Profile{
		"closed": {Name: "closed", Guard: on, Commands: []string{"ls"}},
		"open":   {Name: "open", Commands: []string{"*"}},
	}
	var log bytes.Buffer
	m := newManager(Options{Profiles: profiles, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := m.takeKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.sayOpenings()
	for _, want := range []string{"profile open: the guard is off", "profile open: commands is"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("%q is not one line of:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "profile closed") {
		t.Errorf("the log has:\n%s", log.String())
	}
	profiles["open"] = chat.Profile{Name: "open", Guard: on, Commands: []string{"*"}}
	all, err := verdict.KeysOf(profiles)
	if err != nil {
		t.Fatal(err)
	}
	m.checked.Store(&all)
	if open := m.openings(); len(open) != 1 || !strings.Contains(open[0], "commands is") {
		t.Errorf("after a reload with a guard: %q", open)
	}
}
