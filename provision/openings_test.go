package provision

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestOpeningsAreSaid: a guard that is off and a PATH of every program are one line each, and a
// profile without either is none; after a reload it is the guard of the new config that counts.
func TestOpeningsAreSaid(t *testing.T) {
	on, limits := chat.DefaultGuard(), chat.DefaultLimits()
	profiles := map[string]chat.Profile{
		"closed": {Name: "closed", Limits: limits, Guard: on, Commands: []string{"ls"}},
		"open":   {Name: "open", Limits: limits, Commands: []string{"*"}},
	}
	var log bytes.Buffer
	m := newManager(Options{Profiles: profiles, Log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	must.Do(t, m.policy.CheckFirst())
	m.sayOpenings()
	for _, want := range []string{"profile open: the guard is off", "profile open: commands is"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("%q is not one line of:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "profile closed") {
		t.Errorf("the log has:\n%s", log.String())
	}
	profiles["open"] = chat.Profile{Name: "open", Limits: limits, Guard: on, Commands: []string{"*"}}
	next := must.Get(m.policy.WithProfiles(nil, profiles))(t)
	m.policy.Set(next)
	if open := m.openings(); len(open) != 1 || !strings.Contains(open[0], "commands is") {
		t.Errorf("after a reload with a guard: %q", open)
	}
}
