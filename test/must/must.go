// Package must ends a test at its first error. Each function takes the test and what has to hold.
// Package expect reports the same and goes on.
//
// # What it does not stop
//
// A goroutine of a test may not end the test: there, use package expect.
package must

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// Do ends the test if any of the errors is not nil.
func Do(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call. The function that it returns ends the test if the call failed:
//
//	text := must.Get(os.ReadFile(path))(t)
func Get[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		Do(t, err)
		return v
	}
}

// First is Get of a call with two values, and returns the first.
func First[V, W any](v V, _ W, err error) func(testing.TB) V { return Get(v, err) }

// Run runs a command, and ends the test with what it wrote if it fails.
func Run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
}

// True ends the test with a message if ok is false.
func True(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// Root skips a test of another user, which needs root for that; where nothing may be left out, it
// fails.
func Root(t testing.TB, why string) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CHATD_TEST_REQUIRE") == "all":
		t.Fatal("needs root: " + why)
	default:
		t.Skip("SKIPPED: needs root: " + why)
	}
}
