package view

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// startOf is what a session of the chat starts from.
func startOf(p *Planner, c Chat) Start {
	v := p.Of(c)
	return Start{Chat: c.ID, Profile: c.Profile.Name, View: v, Plan: v.Plan(c.Home, 1, nil, nil)}
}

// TestDescribe: a plan names its chat, and its notes say what was asked for, then what is put over
// the view, if it is.
func TestDescribe(t *testing.T) {
	p, _, c := planned(nil)
	s := startOf(p, c)
	s.Notes, s.Apart, s.Rules = []string{"asked for"}, true, "the.rules"
	plan := s.Describe()
	if plan.ID != c.ID || plan.Profile != "shop" || plan.User != c.ID.User() ||
		plan.StartedAt != nil {
		t.Errorf("%+v", plan)
	}
	want := []string{"asked for", "overlays", "/proc", "file rules of the.rules"}
	expect.True(t, slices.EqualFunc(plan.Notes, want, strings.Contains),
		"the notes are %q, want %q", plan.Notes, want)
	p, _, c = planned(func(o *Options) {
		o.Layers = layers.New(layers.Options{Without: []chat.LayerName{chat.LayerProc}})
	})
	plan = startOf(p, c).Describe()
	expect.True(t, plan.Notes != nil && len(plan.Notes) == 0,
		"a view with nothing over it has the notes %q", plan.Notes)
}

// TestBegin: the plan of a session that starts is logged whole, once, and more loudly if the
// session sees something of the host or was asked for what it does not see.
func TestBegin(t *testing.T) {
	for level, change := range map[string]func(*Start){
		"DEBUG": func(*Start) {},
		"INFO":  func(s *Start) { s.Notes = []string{"asked for"} },
		"INFO+": func(s *Start) {
			s.View.Exposed = []chat.Exposed{{Source: "/a", Target: "/b", Mode: chat.ReadOnly}}
		},
	} {
		p, _, c := planned(nil)
		s := startOf(p, c)
		change(&s)
		var log bytes.Buffer
		to := slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		plan := s.Begin(slog.New(to))
		must.True(t, plan.StartedAt != nil, "%+v", plan)
		var r struct {
			Level, Msg, Chat, Profile string
			Mounts, Notes             []string
		}
		if err := json.Unmarshal(log.Bytes(), &r); err != nil {
			t.Fatalf("%v of %s", err, log.String())
		}
		if r.Level != strings.Trim(level, "+") || r.Chat != string(c.ID) || r.Profile != "shop" ||
			r.Msg != "linux isolation mount plan" || !slices.Equal(r.Notes, plan.Notes) {
			t.Errorf("%s: %s", level, log.String())
		}
		seen := slices.Contains(r.Mounts, "bind /a->/b ro")
		expect.True(t, seen == (level == "INFO+") && len(r.Mounts) == len(plan.Mounts),
			"%s: the mounts are %q", level, r.Mounts)
	}
}

// TestFileTool: the tools may use what the profile grants, by the same expressions, and what it
// exposes outside the home, with what is below it, as it is exposed.
func TestFileTool(t *testing.T) {
	p := chat.Profile{
		AllowReadOutsideWorkspace: true,
		AllowReadPaths:            append(make([]string, 0, 9), "^/read"),
		AllowWritePaths:           []string{"^/write"},
		ExposePaths: []chat.Expose{
			{Source: "/a", Target: "/at/a.b/", Mode: chat.ReadOnly},
			{Source: "/c", Mode: chat.ReadWrite},
			{Source: "/d", Target: "~/d", Mode: chat.ReadWrite},
		},
	}
	may := FileTool(p, "/h/a")
	want := plan.FileTool{
		Workspace: "/h/a", Roots: []string{"/tmp", "/var/tmp"}, ReadOutside: true,
		AllowRead: []string{"^/read", `^/at/a\.b`, "^/c"}, AllowWrite: []string{"^/write", "^/c"},
	}
	have, err := json.Marshal(may)
	wanted, _ := json.Marshal(want)
	expect.True(t, err == nil && bytes.Equal(have, wanted), "%s, want %s", have, wanted)
	if beyond := p.AllowReadPaths[:2]; beyond[1] != "" {
		t.Errorf("the profile's list was written to: %q", beyond)
	}
}
