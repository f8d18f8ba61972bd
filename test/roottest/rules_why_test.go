package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestKernelDenialsNameTheRule: where the kernel refuses by a rule whose name the caller did not
// use, the answer, the audit log and explain name the rule and its line; with messages: vague
// none but operators hear of it. A mode that refuses is not a rule.
func TestKernelDenialsNameTheRule(t *testing.T) {
	for _, messages := range []string{"verbose", "vague"} {
		t.Run(messages, func(t *testing.T) {
			opt := ruledOptions(t, fmt.Sprintf("access:\n  messages: %s\n  deny: ['**/vaul?/**', '**/*.pem']\n", messages))
			m := open(t, opt)
			t.Cleanup(func() { endEnforcer(t, opt) })
			bridge := asBridge(t.Context(), "bridge")
			c := asleepFor(bridge, t, m)
			pem := putFile(t, c, "a.pem", secret)
			must.Do(t, errors.Join(os.Chown(pem, int(c.UID), int(c.UID)), os.Link(pem, filepath.Join(c.Home, "linked"))))
			putDir(t, c, "vault")
			putDir(t, c, "shut")
			must.Do(t, os.Symlink("vault", filepath.Join(c.Home, "way")))
			must.Do(t, os.Chmod(filepath.Join(c.Home, "shut"), 0))
			wake(t, m, c.ID)
			for _, ctx := range []context.Context{operator(t.Context()), bridge} {
				kernelDenials(ctx, t, opt, m, c, messages == "vague" && chat.CallerFrom(ctx).Role != chat.RoleOperator)
			}
			must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
			if text, err := get(t, m, c.ID, "linked"); err != nil {
				t.Errorf("asleep, a file of the chat's own is judged by the name: %q, %v", text, err)
			}
			must.Do(t, errors.Join(os.Chown(pem, 0, 0), os.Chmod(pem, 0o644)))
			var d *filewire.Denial
			if _, err := get(t, m, c.ID, "linked"); !errors.As(err, &d) || d.Rule != filewire.RuleHardLink {
				t.Errorf("asleep, another owner's file: %v, %#v", err, d)
			}
		})
	}
}

// asleepFor is a chat of a caller's with rules.
func asleepFor(ctx context.Context, t *testing.T, m *manager) chat.Chat {
	t.Helper()
	no := false
	c, _, err := m.Create(ctx, chat.Spec{ExternalID: "why", Profile: "ruled", Awake: &no})
	must.Do(t, err)
	return c
}

func kernelDenials(ctx context.Context, t *testing.T, opt provision.Options, m *manager, c chat.Chat, terse bool) {
	t.Helper()
	_, err := m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "linked"}, func(filewire.Answer) io.Writer { return io.Discard })
	var d *filewire.Denial
	switch {
	case !errors.As(err, &d):
		t.Errorf("the other name of a denied file: %v", err)
	case terse && (d.Rule+d.Place+d.Layer+d.Path != "" || strings.Contains(err.Error(), "pem")):
		t.Errorf("terse: %#v", d)
	case !terse && (d.Rule != "deny **/*.pem" || d.Place != "rules.yaml:3"):
		t.Errorf("%#v", d)
	}
	expect.True(t, len(auditLines(t, opt, "read_file", "denied", "deny **/*.pem", "rules.yaml:3")) != 0,
		"no line of the audit log names the rule")
	e, err := m.Explain(ctx, c.ID, chat.Question{Path: "linked", Op: "read"})
	if err != nil || e.Verdict != "deny" || !e.ByKernel || terse == (e.Place == "rules.yaml:3") {
		t.Errorf("explain: %+v, %v", e, err)
	}
	for _, dir := range []string{"vault", "way"} { // chdir(2) opens nothing
		r, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "ls", Cwd: dir})
		if err != nil || r.Exit == 0 || !strings.Contains(r.Stderr, "Operation not permitted") {
			t.Errorf("a run in %s: %+v, %v", dir, r, err)
		}
	}
	if _, err = m.Run(ctx, c.ID, chat.RunSpec{Command: "true", Cwd: "shut"}); err == nil || strings.Contains(err.Error(), "rule") {
		t.Errorf("a directory without a mode: %v", err)
	}
}
