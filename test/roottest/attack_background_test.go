package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAttackSupervisorFiles: of the supervisor's descriptors its children get only the three streams
// and those that nsenter needs. The file with the run's result and cgroup.kill are root's open
// files: no process in the session, or on the way there, may hold them.
func TestAttackSupervisorFiles(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "files", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "echo on; ls -l /proc/self/fd; exec sleep 1000", OpenStdin: true})
	awaitOutput(t, m, c.ID, r.ID, "on")
	all := supervisors(t)
	must.True(t, len(all) == 1, "supervisors: %v", all)
	for _, nsenter := range childrenOf(t, all[0]) {
		dir := fmt.Sprintf("/proc/%d/fd", nsenter)
		files := must.Get(os.ReadDir(dir))(t)
		kinds := map[string]int{}
		for _, f := range files {
			to := must.Get(os.Readlink(filepath.Join(dir, f.Name())))(t)
			kind, _, _ := strings.Cut(to, ":")
			if kinds[kind]++; strings.HasPrefix(to, "/") && kind != "/memfd" && !strings.HasSuffix(to, "/"+r.ID+"/stdin") {
				t.Errorf("nsenter holds %s", to)
			}
			if n, err := strconv.Atoi(f.Name()); err != nil || n > 11 {
				t.Errorf("nsenter holds descriptor %s, %s, which it was not told of", f.Name(), to)
			}
		}
		// Its output, its errors, and what chatd-shim reports to.
		expect.True(t, kinds["pipe"] == 3, "nsenter holds %v", kinds)
	}
}

// childrenOf are the children of a process.
func childrenOf(t testing.TB, pid int) (all []int) {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))(t)
	for _, f := range strings.Fields(string(text)) {
		var n int
		must.Get(fmt.Sscan(f, &n))(t)
		all = append(all, n)
	}
	return all
}

// TestAttackBombsInTheBackground: while the chat forks without end, and then while it is out of
// memory again and again, background runs are begun: their supervisors are in its limits for a
// moment. Each says within its time that it began or why not; what began is not lost by what
// happens then; of what did not, nothing is left.
func TestAttackBombsInTheBackground(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a := inmateOf(t, m, "background bombs", "default")
	bombs := startRun(t, m, a.ID, chat.RunSpec{Argv: []string{a.program, "bombs"}, Timeout: chat.MaxTimeout})
	awaitBombs(t, a)
	beginMany(t, m, a.ID)
	must.Do(t, within(t, "the end of the bombs", func() error { return m.EndRun(operator(t.Context()), a.ID, bombs.ID) }))
	a.typeLine(t, "until test -e ~/enough; do head -c 400M /dev/zero | tail >/dev/null; done")
	awaitBombs(t, a)
	began := beginMany(t, m, a.ID)
	must.Do(t, os.WriteFile(a.in("enough"), nil, 0o644))
	for _, r := range began {
		if got := awaitRun(t, m, a.ID, r.ID); got.State == chat.RunLost {
			t.Errorf("%+v", got)
		}
	}
	if left := runLeaves(t, opt); len(left) > 0 || len(supervisors(t)) > 0 {
		t.Errorf("left: %v, %v", left, supervisors(t))
	}
	r := startRun(t, m, a.ID, chat.RunSpec{Command: "exit 7"})
	if got := awaitRun(t, m, a.ID, r.ID); got.Result.Exit != 7 {
		t.Errorf("afterwards: %+v", got.Result)
	}
}

// beginMany begins short runs, and returns those that began.
func beginMany(t *testing.T, m *manager, id chat.ID) (began []chat.Run) {
	t.Helper()
	refused := map[string]int{}
	for range 24 {
		err := within(t, "a start", func() error {
			r, err := m.StartRun(operator(t.Context()), id, chat.RunSpec{Command: "exit 7", Timeout: chat.Duration(10 * time.Second)})
			if err == nil {
				began = append(began, r)
			}
			return err
		})
		if err != nil {
			refused[err.Error()[:min(len(err.Error()), 40)]]++
		}
	}
	t.Logf("%d began; refused: %v", len(began), refused)
	return began
}
