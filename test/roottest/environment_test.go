package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestEnvironment: the variables of a profile and of a chat are in its terminal and in its
// runs, a skeleton's ~/.config is what XDG_CONFIG_HOME names, and a program of the chat's own
// in ~/.local/bin is found, after those that chatd put into PATH.
func TestEnvironment(t *testing.T) {
	opt := options(t)
	skel := filepath.Join(filepath.Dir(opt.State), "skel")
	must.Do(t, os.MkdirAll(filepath.Join(skel, ".config", "opencode"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(skel, ".config", "opencode", "model"), []byte("mine\n"), 0o644))
	opt.Profiles["plain"] = chat.Profile{Name: "plain", Limits: chat.DefaultLimits(), Commands: []string{"*"}, Skeleton: skel,
		Env: map[string]string{"FROM_PROFILE": "p", "BOTH": "profile"}}
	m := open(t, opt)
	spec := chat.Spec{ExternalID: "x", Profile: "plain", Env: map[string]string{"FROM_CHAT": "c d", "BOTH": "chat"}}
	c, _, err := m.Create(operator(t.Context()), spec)
	must.Do(t, err)
	const vars = `printf '%s.%s.%s|' "$FROM_PROFILE" "$FROM_CHAT" "$BOTH"; echo`
	tryAll(t, m, c, []want{
		{vars, "p.c d.chat|"},
		{"cat $XDG_CONFIG_HOME/opencode/model ~/.config/opencode/model", "mine\nmine\n"},
		{"echo x >~/.cache/y && cat $XDG_CACHE_HOME/y && echo z >$XDG_STATE_HOME/z && cat ~/.local/state/z", "x\nz\n"},
		{"echo $PAGER $EDITOR $NPM_CONFIG_PREFIX $PIP_BREAK_SYSTEM_PACKAGES", c.Home + "/.local 1"},
		{"mkdir -p ~/.local/bin; printf '#!/bin/sh\necho own' >~/.local/bin/own-tool; cp ~/.local/bin/own-tool ~/.local/bin/cat; chmod +x ~/.local/bin/*; own-tool; cat /dev/null; command -v cat", "own\n/opt/chatd/bin/cat\n"},
	})
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: vars, Enter: true}))
	waitScreen(t, m, c.ID, "p.c d.chat|")
	expect.True(t, c.Env["FROM_CHAT"] == "c d", "shown: %v", c.Env)
	spec.Env = map[string]string{"FROM_CHAT": "other"}
	expect.Is(t, expect.Err(m.Create(operator(t.Context()), spec)), chat.ErrExists,
		"the same chat with another env")
	for _, name := range []string{"LD_PRELOAD", "PATH", "BASH_ENV"} {
		_, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: name, Env: map[string]string{name: "x"}})
		expect.Is(t, err, chat.ErrInvalid, "%s", name)
	}
}

// TestInstallsIntoTheHome: npm and pip, where the host has them, install without a flag.
func TestInstallsIntoTheHome(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "x", "default")
	must.Do(t, os.Mkdir(filepath.Join(c.Home, "tool"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "tool", "package.json"), []byte(`{"name":"own-npm","version":"1.0.0","bin":{"own-npm":"x.js"}}`), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "tool", "x.js"), []byte("#!/usr/bin/env node\nconsole.log('by npm')\n"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "tool", "setup.py"), []byte("from setuptools import setup\nsetup(name='own-pip', version='1', py_modules=['own_pip'])\n"), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "tool", "own_pip.py"), []byte("print('by pip')\n"), 0o644))
	must.Do(t, filepath.WalkDir(filepath.Join(c.Home, "tool"), func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, int(c.UID), int(c.UID)))
	}))
	tried := 0
	for tool, try := range map[string]want{
		"npm":        {"npm install -g --offline --no-audit --no-fund ./tool >/dev/null && own-npm", "by npm\n"},
		"setuptools": {"pip install --no-index --no-build-isolation --no-deps ./tool >/dev/null && python3 -c 'import own_pip'", "by pip\n"},
	} {
		if r := run(t, m, c.ID, map[string]string{"npm": "npm --version", "setuptools": "pip --version && python3 -c 'import setuptools, wheel'"}[tool]); r.Exit != 0 {
			t.Logf("the host has no %s: %s", tool, r.Stderr)
			continue
		}
		tried++
		tryAll(t, m, c, []want{try})
	}
	if tried == 0 {
		t.Skip("neither npm nor pip with setuptools and wheel is on this host")
	}
}

// TestProgramsInstalledLater: a program that the host gets while chatd runs is in PATH at the
// next run, awake or not, and one that it loses is not.
func TestProgramsInstalledLater(t *testing.T) {
	opt := options(t)
	name := fmt.Sprintf("chatd-test-tool-%d", os.Getpid())
	must.Do(t, unix.Mount("tmpfs", "/usr/local/bin", "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() { must.Do(t, unix.Unmount("/usr/local/bin", unix.MNT_DETACH)) })
	opt.Profiles["plain"] = chat.Profile{Name: "plain", Limits: chat.DefaultLimits(), Commands: []string{"sh", name}}
	m := open(t, opt)
	c := create(t, m, "x", "plain")
	if r := run(t, m, c.ID, name); r.Exit != 127 {
		t.Fatalf("before: %+v", r)
	}
	must.Do(t, os.WriteFile(filepath.Join("/usr/local/bin", name), []byte("#!/bin/sh\necho here\n"), 0o755))
	tryAll(t, m, c, []want{{name, "here\n"}})
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	must.Do(t, os.Remove(filepath.Join("/usr/local/bin", name)))
	if r := run(t, m, c.ID, name); r.Exit != 127 {
		t.Errorf("after: %+v", r)
	}
}

// TestShellIsDefault: the shipped name and that of older configs and records mean one profile,
// unless the config has one named shell.
func TestShellIsDefault(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	no := false
	spec := func(profile string) chat.Spec { return chat.Spec{ExternalID: "x", Profile: profile, Awake: &no} }
	ctx := operator(t.Context())
	c, _, err := m.Create(ctx, spec(chat.ShellProfile))
	must.Do(t, err)
	for _, name := range []string{"", chat.DefaultProfile, chat.ShellProfile} {
		if again, created, err := m.Create(ctx, spec(name)); err != nil || created || again.ID != c.ID || again.Profile != chat.DefaultProfile {
			t.Errorf("%q: %+v, %v, %v", name, again, created, err)
		}
	}
	must.Do(t, m.Close())
	opt.Profiles[chat.ShellProfile] = chat.Profile{Name: chat.ShellProfile, Limits: chat.DefaultLimits(), Commands: []string{"sh"}}
	m = open(t, opt)
	if _, _, err := m.Create(ctx, spec(chat.ShellProfile)); !errors.Is(err, chat.ErrExists) || !strings.Contains(err.Error(), "shell") {
		t.Errorf("with a profile of that name: %v", err)
	}
}
