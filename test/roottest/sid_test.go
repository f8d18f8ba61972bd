package roottest

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRunHasASession: a run leads a session (setsid(2)) that it can name, whatever kind of run it
// is. Field 6 of proc_pid_stat(5) is 0 where the session is outside the pid namespace.
func TestRunHasASession(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "has a session", "default")
	const show = "read _ _ _ _ _ sid _ < /proc/self/stat; echo session $sid of $$"
	want := func(what, out string) {
		t.Helper()
		f := strings.Fields(out)
		expect.True(t, len(f) == 4 && f[1] != "0" && f[1] == f[3], "%s: %q", what, out)
	}
	want("a run", run(t, m, c.ID, show).Stdout)
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: show, TTY: &chat.TTY{Rows: 24, Cols: 80}})
	must.Do(t, err)
	want("a run with a terminal", r.Stdout)
	b := startRun(t, m, c.ID, chat.RunSpec{Command: show})
	want("a background run", awaitRun(t, m, c.ID, b.ID).Result.Stdout)
}
