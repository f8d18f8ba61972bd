package shims

import (
	"strings"
	"testing"
)

// TestHomeFix tells an operator who tries chatd below /tmp what is weak there, and why.
func TestHomeFix(t *testing.T) {
	for home, want := range map[string]string{
		"/tmp/run/probe/1":     "move run and homes out of /tmp/",
		"/var/tmp/run/probe/1": "move run and homes out of /var/tmp/",
		"/tmphomes/1":          "chown the home",
		"/run/chatd/probe/1":   "chown the home",
	} {
		if fix := homeFix(home); !strings.Contains(fix, want) {
			t.Errorf("%s: the fix is %q, want %q", home, fix, want)
		}
	}
}
