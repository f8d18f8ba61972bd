package roottest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// withGuard is the profiles with another guard of one of them.
func withGuard(opt provision.Options, name string, edit func(*chat.Profile)) map[string]chat.Profile {
	all := maps.Clone(opt.Profiles)
	p := all[name]
	edit(&p)
	all[name] = p
	return all
}

// TestReloadGuard: after a reload new runs are checked by the new guard, and so are the
// shims of the session that is awake; a bad guard changes neither. The chat cannot
// change what its shims read, and another chat cannot read it.
func TestReloadGuard(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	k := front(t, m)
	c, other := create(t, m, "reloaded", "guarded"), create(t, m, "beside it", "guarded")
	ctx := operator(t.Context())
	putFile(t, c, "try.sh", "rm keep; echo code $?")
	shim := func() string {
		putFile(t, c, "keep", "x")
		return run(t, m, c.ID, "sh try.sh 2>&1").Stdout
	}
	run1 := func() error {
		_, err := k.Run(ctx, c.ID, chat.RunSpec{Command: "rm -f keep"})
		return err
	}
	session := func() string { return run(t, m, c.ID, "cat /proc/1/stat | cut -d' ' -f22").Stdout }
	began := session()
	if out, err := shim(), run1(); out != "code 0\n" || err != nil {
		t.Errorf("before: %q, %v", out, err)
	}
	deny := withGuard(opt, "guarded", func(p *chat.Profile) {
		p.Guard.CustomDenyPatterns = []chat.Pattern{{Text: "^rm .*keep", Place: "chatd.yaml:9"}}
		p.TimeoutMax = chat.Duration(time.Second)
	})
	must.Do(t, m.ReloadProfiles(ctx, nil, deny))
	denied := func(when string) {
		t.Helper()
		if out, err := shim(), run1(); !strings.Contains(out, "code 126") || !strings.Contains(out, "rule ^rm .*keep") || !errors.Is(err, chat.ErrDenied) {
			t.Errorf("%s: %q, %v", when, out, err)
		}
		expect.Is(t, expect.Err(k.Run(ctx, c.ID, chat.RunSpec{Command: "true", Timeout: chat.Duration(2 * time.Second)})), chat.ErrInvalid,
			"%s: timeout_max", when)
	}
	denied("after a reload")
	for what, bad := range map[string]map[string]chat.Profile{
		"a pattern": withGuard(opt, "guarded", func(p *chat.Profile) { p.Guard.CustomAllowPatterns = []chat.Pattern{{Text: "("}} }),
		"a preset":  withGuard(opt, "guarded", func(p *chat.Profile) { p.Guard.Preset = "none such" }),
		"a profile": {"default": opt.Profiles["default"]},
	} {
		expect.Is(t, m.ReloadProfiles(ctx, nil, bad), chat.ErrInvalid, "%s that cannot be meant", what)
		denied("after " + what + " that cannot be meant")
	}
	out := run(t, m, c.ID, "cd /opt/chatd/policy && (echo x >policy.json; echo x >new; mv policy.json y; unlink policy.json; chmod 777 .; ln -s /tmp z) 2>&1; ls -A").Stdout
	expect.True(t, strings.HasSuffix(out, "\npolicy.json\n"), "in the directory of the policy: %s", out)
	denied("after the chat has tried to change it")
	policy := filepath.Join(opt.Run, "sessions", string(c.ID), "policy/policy.json")
	out = asHostUser(t, other.UID, "cat "+policy+" && ls "+filepath.Dir(policy))
	expect.True(t, strings.Contains(out, "Permission denied") && !strings.Contains(out, c.Home), "another chat's user reads %q", out)
	out = asHostUser(t, c.UID, "cat "+policy)
	expect.True(t, strings.Contains(out, c.Home), "control: its own user reads %q", out)
	must.Do(t, m.ReloadProfiles(ctx, nil, opt.Profiles))
	if out, err := shim(), run1(); out != "code 0\n" || err != nil || session() != began {
		t.Errorf("with the old guard again, in the session of %s and %s: %q, %v", began, session(), out, err)
	}
}

// TestReloadAdopted: a chatd that is started with another guard brings it to the shims
// of sessions that lived on.
func TestReloadAdopted(t *testing.T) {
	opt := guardedOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "adopted guard", "guarded")
	putFile(t, c, "try.sh", "rm keep; echo code $?")
	must.Do(t, m.Close())
	opt.Profiles = withGuard(opt, "guarded", func(p *chat.Profile) { p.Guard.CustomDenyPatterns = []chat.Pattern{{Text: "^rm keep"}} })
	m = open(t, opt)
	putFile(t, c, "keep", "x")
	out := run(t, m, c.ID, "sh try.sh 2>&1").Stdout
	expect.True(t, strings.Contains(out, "code 126"), "%q", out)
}

// TestVariablesOfDaemon: what a variable of chatd serve sets is in force, and is still after the
// config is read again.
func TestVariablesOfDaemon(t *testing.T) {
	t.Setenv("CHATD_PROFILES_DEFAULT_GUARD_CUSTOM_DENY_PATTERNS", "^echo w")
	d := startDaemon(t, options(t), "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "by a variable"}))(t)
	denied := func(when string) {
		t.Helper()
		expect.Says(t, expect.Err(d.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo word"})),
			chat.ErrDenied, "rule ^echo w", "%s", when)
	}
	denied("after the start")
	d.hup(t, "the file rules were read again")
	denied("after SIGHUP")
}

// TestReloadDaemon: SIGHUP reads the config again. What is wrong in it is named with its
// line, and changes nothing.
func TestReloadDaemon(t *testing.T) {
	opt := options(t)
	config := configFile(t, opt)
	text := must.Get(os.ReadFile(config))(t)
	write := func(guard string) {
		must.Do(t, os.WriteFile(config, fmt.Appendf(nil, "%sprofiles:\n  own:\n    commands: ['*']\n    guard:\n      %s\n", text, guard), 0o600))
	}
	write("preset: default")
	d := startDaemonOf(t, opt, config, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "daemon", Profile: "own"}))(t)
	verdict := func() string {
		_, err := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "echo word"})
		if errors.Is(err, chat.ErrDenied) {
			return "denied"
		}
		must.Do(t, err)
		return "ran"
	}
	expect.Equal(t, verdict(), "ran", "")
	write("custom_deny_patterns: ['^echo w']")
	d.hup(t, "the file rules were read again, and the guards")
	expect.Equal(t, verdict(), "denied", "after a reload it")
	write("custom_deny_patterns: ['(']")
	d.hup(t, "chatd.yaml:12: profiles.own.guard.custom_deny_patterns[0]")
	expect.Equal(t, verdict(), "denied", "after a bad config it")
	write("preset: default\n    allow_netlink: true\n    limits: {pids_max: 99}")
	d.hup(t, "waits for a restart")
	until(t, "with the first guard again it runs", func() bool { return verdict() == "ran" })
}
