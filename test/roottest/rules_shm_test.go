package roottest

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestRulesOfSharedMemory: what is in /dev/shm is kept like other files, by name and by
// directory; without rules it can be read.
func TestRulesOfSharedMemory(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["/dev/shm/keys/**", "*.pem"]}`)
	m := open(t, opt)
	defer endEnforcer(t, opt)
	ruled, plain := sleeper(t, m, "shm"), create(t, m, "shm without rules", "default")
	wake(t, m, ruled.ID)
	const act = "mkdir -p /dev/shm/keys; echo %s > /dev/shm/k.pem; echo %[1]s > /dev/shm/keys/k; sleep .2; cat /dev/shm/k.pem /dev/shm/keys/k; echo; echo open > /dev/shm/f; cat /dev/shm/f"
	if got := tells(t, m, plain, act, secret); strings.Count(got, secret) != 2 || !strings.HasSuffix(got, "open\n") {
		t.Errorf("without rules: %q", got)
	}
	if got := tells(t, m, ruled, act, secret); strings.Contains(got, secret) || !strings.Contains(got, "open\n") {
		t.Errorf("with rules: %q", got)
	}
	for name, want := range map[string]string{"/dev/shm/k.pem": "deny", "/dev/shm/keys/k": "deny", "/dev/shm/f": "allow"} {
		if e, err := m.Explain(operator(t.Context()), ruled.ID, chat.Question{Path: name, Op: "bash"}); err != nil || e.Verdict != want {
			t.Errorf("explain of %s: %+v, %v", name, e, err)
		}
	}
}
