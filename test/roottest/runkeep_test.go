package roottest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// endedAgo has a background run that has ended, ended so long ago.
func endedAgo(t *testing.T, dir string, ago time.Duration) {
	t.Helper()
	name := filepath.Join(dir, "result.json")
	text := must.Get(os.ReadFile(name))(t)
	var e map[string]any
	must.Do(t, json.Unmarshal(text, &e))
	e["at"] = time.Now().UTC().Add(-ago)
	text = must.Get(json.Marshal(e))(t)
	must.Do(t, os.WriteFile(name, text, 0o600))
}

// TestRunsAreKept: a run that has ended is kept for 30 minutes, also over a restart, and is then as
// one that never was, with its files; of more output than a chat may keep the oldest goes first.
func TestRunsAreKept(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "kept", "default")
	ctx := operator(t.Context())
	files := func(run string) string { return filepath.Join(opt.Run, "runs", string(c.ID), run) }
	gone := func(run string) bool {
		_, err := m.ShowRun(ctx, c.ID, run)
		_, ferr := os.Lstat(files(run))
		return errors.Is(err, chat.ErrNotFound) && errors.Is(ferr, os.ErrNotExist)
	}
	var runs []string
	for range 3 {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo kept"})
		awaitRun(t, m, c.ID, r.ID)
		runs = append(runs, r.ID)
	}
	must.Do(t, m.Close())
	old, soon, young := runs[0], runs[1], runs[2]
	endedAgo(t, files(old), chat.RunRetention+time.Second)
	endedAgo(t, files(soon), chat.RunRetention-3*time.Second)
	endedAgo(t, files(young), chat.RunRetention-5*time.Minute)
	m = open(t, opt)
	expect.True(t, gone(old), "a run that ended more than 30 minutes ago is kept")
	expect.True(t, comes(func() bool { return gone(soon) }), "a run whose 30 minutes are over is kept")
	if r := awaitRun(t, m, c.ID, young); r.Result.Stdout != "kept\n" {
		t.Errorf("a run that ended 25 minutes ago: %+v", r)
	}
	// full is in runs, each with both streams full.
	const full = chat.MaxRetainedOutput / (2 * chat.DefaultOutputMax)
	for range full {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: "head -c 1100000 /dev/zero | tee /dev/stderr"})
		runs = append(runs, r.ID)
		awaitRun(t, m, c.ID, r.ID)
	}
	comes(func() bool { return gone(young) }) // the oldest go once the last one's end is known
	expect.True(t, gone(young) && !gone(runs[len(runs)-1]) && !gone(runs[len(runs)-2]),
		"of more than a chat may keep the oldest is kept, or a newer one is gone")
}
