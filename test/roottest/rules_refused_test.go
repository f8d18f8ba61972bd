package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesUnkeepable: rules with which no session could start are refused when they are read, and
// change nothing: awake chats stay awake, with the old rules. Accepted rules let sessions continue,
// and start.
func TestRulesUnkeepable(t *testing.T) {
	old := `access: {useDefaults: false, deny: ["~/keys/**"]}`
	opt := ruledOptions(t, old)
	m := open(t, opt)
	defer endEnforcer(t, opt)
	ctx := operator(t.Context())
	c := sleeper(t, m, "unkeepable")
	putFile(t, c, "keys/k", secret)
	wake(t, m, c.ID)
	for _, pattern := range []string{"dev", "/pro*", "*", "usr", "~", "/srv/**/homes/*", "bash", "libc.so*", "/{bin,x}", "/dev/nul?", "/var", "/t*", "/opt", "etc"} {
		err := m.Reload(ctx, map[string]*filerules.Policy{"ruled": policy(t, `access: {useDefaults: false, deny: ["`+pattern+`"]}`)})
		if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rules.yaml:1") || !strings.Contains(err.Error(), "does not start without") {
			t.Errorf("%s: %v", pattern, err)
		}
		if got, err := m.Get(ctx, c.ID); err != nil || !got.Awake {
			t.Fatalf("%s is refused, and ended a session: awake is %v, %v", pattern, got.Awake, err)
		}
		refused(t, m, c, "cat keys/k")
	}
	for _, pattern := range []string{"/usr/share/doc", "/usr/sbin", "*.log", "/home", "/mnt", "/etc/ssl"} {
		err := m.Reload(ctx, map[string]*filerules.Policy{"ruled": policy(t, `access: {useDefaults: false, deny: ["~/keys/**", "`+pattern+`"]}`)})
		expect.True(t, err == nil, "%s: %v", pattern, err)
		must.Get(m.Sleep(ctx, c.ID))(t)
		wake(t, m, c.ID)
		expect.Equal(t, tells(t, m, c, "echo up"), "up\n", "%s: a run says", pattern)
	}
}

// TestRulesMatchTooMuch: rules that match more of what sessions share than one can have masked are
// refused when they are read, with line and count: at a reload awake chats stay awake, with the old
// rules, and chatd does not start with such rules.
func TestRulesMatchTooMuch(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["~/keys/**"]}`)
	shared := filepath.Join("/srv", fmt.Sprintf("headers-%d-%d", os.Getpid(), worlds.Load()))
	must.Do(t, os.MkdirAll(shared, 0o755))
	t.Cleanup(func() { os.RemoveAll(shared) })
	for i := range 20_001 {
		must.Do(t, os.WriteFile(filepath.Join(shared, fmt.Sprintf("%d.hdr", i)), nil, 0o644))
	}
	p := opt.Profiles["ruled"]
	p.ExposePaths = []chat.Expose{{Source: shared, Target: "/srv/headers", Mode: chat.ReadOnly}}
	opt.Profiles["ruled"] = p
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	defer endEnforcer(t, opt)
	c := sleeper(t, m, "too-much")
	putFile(t, c, "keys/k", secret)
	wake(t, m, c.ID)
	many := map[string]*filerules.Policy{"ruled": policy(t, "access:\n  useDefaults: false\n  deny: [\"*.hdr\"]\n")}
	err = m.Reload(operator(t.Context()), many)
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rules.yaml:3") || !strings.Contains(err.Error(), "it matches 20001 places") {
		t.Errorf("a reload with rules that match too much: %v", err)
	}
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || !got.Awake {
		t.Fatalf("they ended a session: awake is %v, %v", got.Awake, err)
	}
	refused(t, m, c, "cat keys/k")
	must.Do(t, m.Close())
	fewer := opt.FileRules
	opt.FileRules = many
	if _, err := openManager(t.Context(), opt); err == nil || !strings.Contains(err.Error(), "it matches 20001 places") {
		t.Errorf("a start with rules that match too much: %v", err)
	}
	opt.FileRules = fewer
	m = open(t, opt)
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || !got.Awake {
		t.Errorf("the start that failed ended a session: awake is %v, %v", got.Awake, err)
	}
}
