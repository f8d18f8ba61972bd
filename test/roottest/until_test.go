package roottest

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// longEnough bounds every wait for something that must come: no test fails because a machine
// is slow, and one that waits for what never comes says what that is.
const longEnough = 8 * time.Minute

// until waits for ok, and fails the test with what it waited for where that never comes.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	must.True(t, comes(ok), "%s: not within %s", what, longEnough)
}

// comes reports whether ok is true before longEnough is over.
func comes(ok func() bool) bool {
	for end := time.Now().Add(longEnough); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// exists is for until and comes.
func exists(path string) func() bool {
	return func() bool { _, err := os.Lstat(path); return err == nil }
}

// runTag is in the environment of a run that a test looks for, and of all that it starts.
const runTag = "CHATD_TEST_RUN"

// tagged are the processes of a uid that a run with that tag started. Counting them does not depend
// on the session's own processes, or on when they have all started.
func tagged(uid uint32, tag string) (found []int) {
	for _, pid := range pidsOf(uid) {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+runTag+"="+tag+"\x00") {
			found = append(found, pid)
		}
	}
	return found
}

// inRuns are the processes of a uid, the dead among them, that are in the leaf of a run, as the
// kernel says.
func inRuns(uid uint32) (found []int) {
	for _, pid := range pidsOf(uid) {
		groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		if err == nil && strings.Contains(string(groups), "/runs/") {
			found = append(found, pid)
		}
	}
	return found
}
