package tmux

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// attachFrom attaches a client on a terminal of that size, and returns what detaches it.
func attachFrom(t *testing.T, term *Terminal, readOnly bool, rows, cols int) (leave func()) {
	t.Helper()
	var words []string
	for _, w := range AttachArgv(term.socket, readOnly) {
		words = append(words, quote(w))
	}
	line := fmt.Sprintf("stty rows %d cols %d; TERM=xterm exec %s", rows, cols, strings.Join(words, " "))
	cmd := exec.Command("script", "-qec", line, "/dev/null")
	stdin := must.Get(cmd.StdinPipe())(t)
	before := clients(t, term)
	must.Do(t, cmd.Start())
	leave = func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(leave)
	for deadline := time.Now().Add(2 * time.Minute); clients(t, term) == before; time.Sleep(20 * time.Millisecond) {
		must.True(t, !time.Now().After(deadline), "the client did not attach")
	}
	return leave
}

func clients(t *testing.T, term *Terminal) int {
	t.Helper()
	out := must.Get(term.client(t.Context(), nil, []string{"list-clients"}))(t)
	return strings.Count(string(out), "\n")
}

// TestAttachLeavesTheSize: no client changes the size of what it looks at, whether it types or only
// reads, alone or beside others, in the first window or a later one.
func TestAttachLeavesTheSize(t *testing.T) {
	term := start(t, "sh", "-c", "echo ready; exec cat")
	waitScreen(t, term, "ready")
	has := func(when string, rows, cols, count int) {
		t.Helper()
		var s Screen
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			var err error
			if s, err = term.Screen(t.Context(), Plain, 0); err != nil {
				t.Fatal(err)
			}
			if s.Rows == rows && s.Cols == cols && clients(t, term) == count {
				return
			}
		}
		t.Errorf("%s: %dx%d, want %dx%d", when, s.Rows, s.Cols, rows, cols)
	}
	for _, readOnly := range []bool{true, false} {
		for _, size := range [][2]int{{5, 10}, {10, 40}, {1, 1}, {100, 300}} {
			leave := attachFrom(t, term, readOnly, size[0], size[1])
			has("while one is there", Rows, Cols, 1)
			other := attachFrom(t, term, !readOnly, 7, 33)
			has("while two are there", Rows, Cols, 2)
			leave()
			other()
			has("none is there", Rows, Cols, 0)
		}
	}
	must.Get(term.client(t.Context(), nil, []string{"new-window", "-t", target, "sleep 600"}))(t)
	attachFrom(t, term, false, 5, 10)
	has("in a second window", Rows, Cols, 1)
}
