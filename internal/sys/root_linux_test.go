package sys

import (
	"os"
	"testing"
)

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
		t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
	}
	t.Skip("SKIPPED: needs root")
}
