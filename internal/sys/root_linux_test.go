package sys

import (
	"os"
	"testing"

	"github.com/chatd/chatd/test/must"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
	t.Skip("SKIPPED: needs root")
}
