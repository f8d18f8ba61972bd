package roottest

import (
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
)

// TestRulesUnkeepable: what no session could start with is refused when it is read, and
// changes nothing: who is awake stays awake, by the old rules. What is not refused lets
// sessions go on, and start.
func TestRulesUnkeepable(t *testing.T) {
	old := `access: {useDefaults: false, deny: ["~/keys/**"]}`
	opt := ruledOptions(t, old)
	m := open(t, opt)
	defer endKeeper(t, opt)
	ctx := operator(t.Context())
	c := sleeper(t, m, "unkeepable")
	place(t, c, "keys/k", secret)
	wake(t, m, c.ID)
	for _, pattern := range []string{"dev", "/pro*", "*", "usr", "~", "/srv/**/homes/*", "bash", "libc.so*", "/{bin,x}", "/dev/nul?", "/var", "/t*", "/opt", "etc"} {
		err := m.Reload(ctx, map[string]*access.Policy{"ruled": policy(t, `access: {useDefaults: false, deny: ["`+pattern+`"]}`)})
		if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rules.yaml:1") || !strings.Contains(err.Error(), "does not start without") {
			t.Errorf("%s: %v", pattern, err)
		}
		if got, err := m.Get(ctx, c.ID); err != nil || !got.Awake {
			t.Fatalf("%s is refused, and ended a session: awake is %v, %v", pattern, got.Awake, err)
		}
		refused(t, m, c, "cat keys/k")
	}
	for _, pattern := range []string{"/usr/share/doc", "/usr/sbin", "*.log", "/home", "/mnt", "/etc/ssl"} {
		err := m.Reload(ctx, map[string]*access.Policy{"ruled": policy(t, `access: {useDefaults: false, deny: ["~/keys/**", "`+pattern+`"]}`)})
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
		if _, err := m.Sleep(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
		wake(t, m, c.ID)
		if got := tells(t, m, c, "echo up"); got != "up\n" {
			t.Errorf("%s: a run says %q", pattern, got)
		}
	}
}
