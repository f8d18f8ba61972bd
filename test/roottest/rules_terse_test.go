package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// everyWayIn does what the rules deny, on every way in, as the caller of ctx, and
// returns all that it is told.
func everyWayIn(ctx context.Context, t *testing.T, m *manager, c, other chat.Chat) map[string]string {
	t.Helper()
	answers := map[string]string{}
	tell := func(way string, err error) {
		if !errors.Is(err, chat.ErrDenied) {
			t.Errorf("%s: not denied: %v", way, err)
			return
		}
		var d *filewire.Denial
		_ = errors.As(err, &d)
		fields, _ := json.Marshal(d)
		answers[way] = err.Error() + " " + string(fields)
	}
	begin := func(filewire.Answer) io.Writer { return io.Discard }
	k := front(t, m)
	tell("run", second(k.Run(ctx, c.ID, chat.RunSpec{Command: "cat vault/key"})))
	tell("run argv", second(k.Run(ctx, c.ID, chat.RunSpec{Argv: []string{"cat", "vault/key"}})))
	tell("read_file", second(m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "vault/key"}, begin)))
	tell("read_file by a link", second(m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "link/key"}, begin)))
	tell("list_dir", second(m.ListDir(ctx, c.ID, filewire.ListDir{Path: "vault"}, begin)))
	text := "x"
	tell("write_file", second(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "vault/new", Content: &text}, nil)))
	tell("append_file", second(m.AppendFile(ctx, c.ID, filewire.WriteFile{Path: "vault/new", Content: &text}, nil)))
	tell("share from", second(m.Share(ctx, c.ID, chat.Share{Path: "vault/key", To: other.ID, ToPath: "key"})))
	tell("share by a link", second(m.Share(ctx, c.ID, chat.Share{Path: "link/key", To: other.ID, ToPath: "key"})))
	tell("share to", second(m.Share(ctx, other.ID, chat.Share{Path: "open", To: c.ID, ToPath: "vault/new"})))
	for _, q := range []chat.Question{{Path: "vault/key", Op: "read"}, {Path: "link/key", Op: "read"}, {Command: "cat vault/key"}} {
		e, err := k.Explain(ctx, c.ID, q)
		expect.True(t, err == nil && e.Verdict == "deny", "explain %+v: %+v, %v", q, e, err)
		answers["explain "+q.Path+q.Command] = e.Rule + e.Place + e.Layer
	}
	return answers
}

// TestTerseOnEveryWay: with messages: vague only operators are told the rule that denies, its place
// or the path, by any interface; the audit log has them.
func TestTerseOnEveryWay(t *testing.T) {
	needsRoot(t)
	const rules = "access: {useDefaults: false, messages: %s, deny: ['~/vaul?/**']}\n"
	opt := ruledOptions(t, fmt.Sprintf(rules, "vague"))
	p := opt.Profiles["ruled"]
	p.Guard = chat.DefaultGuard()
	opt.Profiles["ruled"] = p
	m := open(t, opt)
	t.Cleanup(func() { endEnforcer(t, opt) })
	bridge := chat.WithCaller(t.Context(), chat.Caller{Name: "bridge", Role: chat.RoleBridge})
	var chats [2]chat.Chat
	for i := range chats {
		no := false
		c, _, err := m.Create(bridge, chat.Spec{ExternalID: fmt.Sprint(i), Profile: "ruled", Awake: &no})
		must.Do(t, err)
		chats[i] = c
		putFile(t, c, "vault/key", "k")
		putFile(t, c, "open", "o")
		must.Do(t, os.Symlink("vault", filepath.Join(c.Home, "link")))
	}
	knows := func(s string) bool {
		return strings.Contains(s, "vaul?") || strings.Contains(s, "rules.yaml") || strings.Contains(s, "global")
	}
	for way, answers := range everyWayIn(bridge, t, m, chats[0], chats[1]) {
		expect.True(t, !knows(answers) && !strings.Contains(answers, "vault"),
			"terse: %s tells a bridge %s", way, answers)
		if strings.HasPrefix(way, "run") && !strings.Contains(answers, "Access denied by policy") {
			t.Errorf("terse: %s tells %s", way, answers)
		}
	}
	if last := lastAudit(t, opt); !strings.Contains(last, "vaul?") || !strings.Contains(last, "rules.yaml") {
		t.Errorf("the audit log has not which rule it was: %s", last)
	}
	for way, answers := range everyWayIn(operator(t.Context()), t, m, chats[0], chats[1]) {
		if strings.HasPrefix(way, "explain") && !knows(answers) {
			t.Errorf("terse: %s tells an operator %q", way, answers)
		}
	}
	m.SetFileRules(map[string]*filerules.Policy{"ruled": policy(t, fmt.Sprintf(rules, "verbose"))})
	for way, answers := range everyWayIn(bridge, t, m, chats[0], chats[1]) {
		// By a link it is the kernel that denies: the enforcer's mask mount is in the way.
		if !knows(answers) && !strings.HasSuffix(way, "by a link") {
			t.Errorf("verbose: %s tells a bridge %s", way, answers)
		}
	}
}
