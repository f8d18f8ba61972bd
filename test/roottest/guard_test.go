package roottest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/guard"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// guardedOptions have profiles with a guard beside those without: guarded has the
// default one, strict PicoClaw's, and off no exec and no terminal.
func guardedOptions(t testing.TB) provision.Options {
	opt := attackOptions(t)
	for name, g := range map[string]chat.Guard{
		"guarded": chat.DefaultGuard(),
		"strict":  {Preset: chat.GuardPicoClaw, EnableDenyPatterns: true, RestrictToWorkspace: true, CustomAllowPatterns: []chat.Pattern{{Text: "rm -rf build"}}},
		"off":     {},
	} {
		edit(opt, name, func(p *chat.Profile) { p.Guard = g })
	}
	edit(opt, "off", func(p *chat.Profile) { p.ToolsOff = []string{chat.ToolExec, chat.ToolTerminal} })
	return opt
}

// TestGuardRuns: a run that the guard refuses is denied and audited, and nothing of it
// happens; the same run in a profile without a guard does.
func TestGuardRuns(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	k := front(t, m)
	strict, free, off := create(t, m, "strict", "strict"), create(t, m, "free", "default"), create(t, m, "off", "off")
	ctx := operator(t.Context())
	for _, c := range []struct {
		spec          chat.RunSpec
		rule, message string
	}{
		{chat.RunSpec{Command: "touch ran; env r''m -rf victim"}, "rm-rf", guard.MessagePattern},
		{chat.RunSpec{Argv: []string{"sh", "-c", "touch ran; rm -rf victim"}}, "rm-rf", guard.MessagePattern},
		{chat.RunSpec{Command: "touch ran; cat ../../../etc/passwd"}, "restrict_to_workspace", guard.MessagePath},
		{chat.RunSpec{Command: "touch ran; cat ../x", Cwd: "/"}, "restrict_to_workspace", guard.MessagePath},
	} {
		_, err := k.Run(ctx, strict.ID, c.spec)
		if !errors.Is(err, chat.ErrDenied) || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%+v: %v", c.spec, err)
		}
		expect.True(t, expect.Err(os.Stat(filepath.Join(strict.Home, "ran"))) != nil,
			"%+v: it ran", c.spec)
		if last := lastAudit(t, opt); !strings.Contains(last, `"outcome":"denied"`) || !strings.Contains(last, c.rule) || !strings.Contains(last, "touch ran") {
			t.Errorf("%+v: the audit log ends with %s", c.spec, last)
		}
		if r, err := k.Run(ctx, free.ID, c.spec); err != nil || r.Signal != "" {
			t.Errorf("without a guard: %+v: %+v, %v", c.spec, r, err)
		}
	}
	expect.Is(t, expect.Err(os.Stat(filepath.Join(free.Home, "ran"))), nil, "control")
	r := run(t, m, strict.ID, "mkdir build && rm -rf build && ls")
	expect.True(t, r.Exit == 0, "allowed: %+v", r)
	expect.Is(t, expect.Err(k.Run(ctx, strict.ID, chat.RunSpec{Command: "ls (("})), chat.ErrInvalid,
		"no command")
	_, err := k.Run(ctx, off.ID, chat.RunSpec{Argv: []string{"true"}})
	expect.Says(t, err, chat.ErrDenied, "exec", "exec is off")
	err = m.Input(ctx, off.ID, chat.Input{Text: "x"})
	expect.Says(t, err, chat.ErrDenied, "terminal", "terminal is off")
	expect.Is(t, m.Input(ctx, strict.ID, chat.Input{Text: "rm -rf victim"}), nil,
		"what is typed is not checked")
}

// TestGuardFileRules: under a guard a command is denied by the file rules of bash too,
// with rule and place; explain says both.
func TestGuardFileRules(t *testing.T) {
	opt := guardedOptions(t)
	rules, err := rulefile.Load("rules.yaml", []byte("access:\n  useDefaults: false\n  rules:\n  - {deny: 'keys/**', ops: [bash]}\n"))
	must.Do(t, err)
	opt.FileRules = map[string]*filerules.Policy{"guarded": rules, "default": rules}
	m := open(t, opt)
	k := front(t, m)
	c, free := create(t, m, "ruled", "guarded"), create(t, m, "ruled free", "default")
	ctx := operator(t.Context())
	for _, spec := range []chat.RunSpec{{Command: "touch ran; cat ~/keys/a"}, {Argv: []string{"cat", "keys/a"}}} {
		expect.Says(t, expect.Err(k.Run(ctx, c.ID, spec)), chat.ErrDenied, "deny keys/**", "%+v", spec)
		if last := lastAudit(t, opt); !strings.Contains(last, "rules.yaml:4") || !strings.Contains(last, `"denied"`) {
			t.Errorf("%+v: the audit log ends with %s", spec, last)
		}
		expect.Is(t, expect.Err(k.Run(ctx, free.ID, spec)), nil, "without a guard: %+v", spec)
	}
	prints(t, m, c.ID, "echo x >keyring; cat keyring", "x\n")
	e, err := k.Explain(ctx, c.ID, chat.Question{Command: "sudo cat keys/a"})
	if err != nil || e.Verdict != "deny" || e.Guard == nil || e.Guard.Verdict != "deny" || e.Guard.Rule != "privileges" || e.Guard.Message != guard.MessagePattern {
		t.Errorf("%+v, %+v, %v", e, e.Guard, err)
	}
	e, err = k.Explain(ctx, c.ID, chat.Question{Command: "ls"})
	expect.True(t, err == nil && e.Verdict == "allow" && e.Guard != nil && e.Guard.Verdict == "allow",
		"%+v, %+v, %v", e, e.Guard, err)
}

// lastAudit is the last line of the daemon's audit log.
func lastAudit(t testing.TB, opt provision.Options) string {
	t.Helper()
	lines := auditLines(t, opt)
	return lines[len(lines)-1]
}
