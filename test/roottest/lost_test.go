package roottest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestLostWhileDown: what is lost of the state, run and home directories while chatd is down, but
// for the records (state.TestLostFiles): chatd starts, the chat is there, asleep where its session
// cannot be adopted, and wakes.
func TestLostWhileDown(t *testing.T) {
	needsRoot(t)
	for what, c := range map[string]struct {
		path  string // below the directory of the test; HOME is the chat's
		awake bool   // the session is adopted
		runs  bool   // the background run is there
	}{
		"nothing":            {"none", true, true},
		"a session's record": {"run/sessions", false, true},
		"the cgroups":        {"run/cgroup.json", true, true},
		"background runs":    {"run/runs", true, false},
		"terminal logs":      {"state/logs", true, true},
		"the home":           {"HOME", true, true},
	} {
		t.Run(what, func(t *testing.T) {
			opt := options(t)
			leaveOrphansToInit(t)
			d := startDaemon(t, opt, "")
			a, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
			must.Do(t, err)
			must.Get(d.AddSchedule(t.Context(), a.ID, chat.ScheduleSpec{
				Every: chat.Duration(30 * time.Minute), Command: "true"}))(t)
			bg := must.Get(d.StartRun(t.Context(), a.ID, chat.RunSpec{Command: "echo over"}))(t)
			if !comes(func() bool {
				r, err := d.ShowRun(t.Context(), a.ID, bg.ID)
				return err == nil && r.State == chat.RunEnded
			}) {
				t.Fatal("the background run does not end")
			}
			d.kill()
			path := filepath.Join(filepath.Dir(opt.State), c.path)
			if c.path == "HOME" {
				path = a.Home
			}
			must.Do(t, os.RemoveAll(path))
			d = startDaemon(t, opt, "")
			got, err := d.Get(t.Context(), a.ID)
			expect.True(t, err == nil && got.Awake == c.awake && got.UID == a.UID,
				"awake %v, uid %d, %v; want %v", got.Awake, got.UID, err, c.awake)
			if r, err := d.ShowRun(t.Context(), a.ID, bg.ID); (err == nil) != c.runs {
				t.Errorf("the run: %+v, %v", r, err)
			}
			if fi, err := os.Stat(a.Home); err != nil || fi.Mode().Perm() != 0o700 {
				t.Errorf("the home: %v", err)
			}
			must.Get(d.Sleep(t.Context(), a.ID))(t)
			must.Get(d.Wake(t.Context(), a.ID))(t)
			if r, err := d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "true"}); err != nil || r.Exit != 0 {
				t.Errorf("after a wake: %+v, %v", r, err)
			}
			must.Do(t, d.Reap(t.Context(), a.ID))
			gone(t, opt, a)
		})
	}
}
