// Package npmtest installs programs of npm's registry for the tests that need them.
//
// # What it does not stop
//
// Anything. It runs npm, and npm runs what the packages bring along.
package npmtest

import (
	"os"
	"os/exec"
	"testing"
)

// Install runs a command line that installs packages, in dir. Where there is no npm, or no
// registry, the test skips, and says so; where nothing may be missing (CHATD_TEST_REQUIRE=all), it
// fails.
func Install(t testing.TB, dir string, argv ...string) {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, err.Error())
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, cmd.String()+": "+err.Error()+": "+string(out))
	}
}

// missing ends the test.
func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
		t.Fatal("cannot install from npm, and CHATD_TEST_REQUIRE=all: " + why)
	}
	t.Skip("NOT TRIED, nothing from npm: " + why)
}
