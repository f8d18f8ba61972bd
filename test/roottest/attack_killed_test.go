package roottest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackKilledStarts: chatd is killed again and again while background runs begin and
// end. What was answered is there afterwards, whatever the moment; what was not leaves no process,
// no leaf and no file.
func TestAttackKilledStarts(t *testing.T) {
	opt := attackOptions(t)
	leaveOrphansToInit(t)
	d := startDaemon(t, opt, "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "killed"})
	must.Do(t, err)
	defer func() { expect.NoError(t, d.Reap(context.Background(), c.ID)) }()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		began := startsUntilKilled(t, d, c.ID, time.Duration(20+rand.IntN(150))*time.Millisecond)
		d = startDaemon(t, opt, "")
		list := must.Get(d.Runs(t.Context(), c.ID))(t)
		known := map[string]chat.Run{}
		for _, r := range list.Runs {
			known[r.ID] = r
		}
		for _, id := range began {
			if _, ok := known[id]; !ok {
				t.Errorf("round %d: run %s, which was answered, is not there", round, id)
			}
		}
		for _, r := range list.Runs {
			if r.State == chat.RunRunning {
				must.Do(t, d.EndRun(t.Context(), c.ID, r.ID))
			}
			got := must.Get(d.ShowRun(t.Context(), c.ID, r.ID))(t)
			if got.State == chat.RunLost && slices.Contains(began, r.ID) {
				t.Errorf("round %d: how run %s ended is lost", round, r.ID)
			}
		}
		nothingRuns(t, opt, c.ID, known)
	}
}

// startsUntilKilled starts runs from many sides until the daemon is killed, and returns those that
// it answered.
func startsUntilKilled(t *testing.T, d *daemon, id chat.ID, after time.Duration) (began []string) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := n; ; i++ {
				spec := chat.RunSpec{Command: []string{"true", "echo on; exec sleep 1000", "exit 7"}[i%3], OpenStdin: i%2 == 0, Timeout: chat.Duration(time.Minute)}
				r, err := d.StartRun(t.Context(), id, spec)
				if err != nil {
					return
				}
				mu.Lock()
				began = append(began, r.ID)
				mu.Unlock()
			}
		})
	}
	time.Sleep(after)
	d.kill()
	all.Wait()
	return began
}

// nothingRuns wants no supervisor, no leaf cgroup, and only the files of known runs.
func nothingRuns(t *testing.T, opt provision.Options, id chat.ID, known map[string]chat.Run) {
	t.Helper()
	left := func() string { return fmt.Sprint(supervisors(t), runLeaves(t, opt)) }
	if !comes(func() bool { return left() == "[] []" }) {
		t.Fatalf("supervisors and leaves are left: %s", left())
	}
	dirs, err := os.ReadDir(filepath.Join(opt.Run, "runs", string(id)))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, ok := known[dir.Name()]; !ok {
			t.Errorf("the files of run %s are left, which is not known", dir.Name())
		}
	}
}
