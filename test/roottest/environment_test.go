package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	writeFile(t, filepath.Join(skel, ".config", "opencode", "model"), "mine\n", 0o644)
	edit(opt, "plain", func(p *chat.Profile) {
		p.Skeleton, p.Env = skel, map[string]string{"FROM_PROFILE": "p", "BOTH": "profile"}
	})
	m := open(t, opt)
	spec := chat.Spec{ExternalID: "x", Profile: "plain", Env: map[string]string{"FROM_CHAT": "c d", "BOTH": "chat"}}
	c := must.First(m.Create(operator(t.Context()), spec))(t)
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
	for name, text := range map[string]string{
		"package.json": `{"name":"own-npm","version":"1.0.0","bin":{"own-npm":"x.js"}}`,
		"x.js":         "#!/usr/bin/env node\nconsole.log('by npm')\n",
		"setup.py":     "from setuptools import setup\nsetup(name='own-pip', version='1', py_modules=['own_pip'])\n",
		"own_pip.py":   "print('by pip')\n",
	} {
		writeFile(t, filepath.Join(c.Home, "tool", name), text, 0o755)
	}
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
	mount(t, "tmpfs", "/usr/local/bin", "mode=0755")
	opt.Profiles["plain"] = chat.Profile{Name: "plain", Limits: chat.DefaultLimits(), Commands: []string{"sh", name}}
	m := open(t, opt)
	c := create(t, m, "x", "plain")
	r := run(t, m, c.ID, name)
	must.True(t, r.Exit == 127, "before: %+v", r)
	must.Do(t, os.WriteFile(filepath.Join("/usr/local/bin", name), []byte("#!/bin/sh\necho here\n"), 0o755))
	tryAll(t, m, c, []want{{name, "here\n"}})
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	must.Do(t, os.Remove(filepath.Join("/usr/local/bin", name)))
	r = run(t, m, c.ID, name)
	expect.True(t, r.Exit == 127, "after: %+v", r)
}

// TestShellIsDefault: the shipped name and that of older configs and records mean one profile,
// unless the config has one named shell.
func TestShellIsDefault(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	spec := func(profile string) chat.Spec { return chat.Spec{ExternalID: "x", Profile: profile, Awake: new(false)} }
	ctx := operator(t.Context())
	c := must.First(m.Create(ctx, spec(chat.ShellProfile)))(t)
	for _, name := range []string{"", chat.DefaultProfile, chat.ShellProfile} {
		if again, created, err := m.Create(ctx, spec(name)); err != nil || created || again.ID != c.ID || again.Profile != chat.DefaultProfile {
			t.Errorf("%q: %+v, %v, %v", name, again, created, err)
		}
	}
	must.Do(t, m.Close())
	opt.Profiles[chat.ShellProfile] = chat.Profile{Name: chat.ShellProfile, Limits: chat.DefaultLimits(), Commands: []string{"sh"}}
	m = open(t, opt)
	expect.Says(t, expect.Err(m.Create(ctx, spec(chat.ShellProfile))), chat.ErrExists, "shell",
		"with a profile of that name")
}

// TestInsideNamesNothing: what a run reads of itself names neither the host's cgroups nor
// where chatd keeps its profiles and programs.
func TestInsideNamesNothing(t *testing.T) {
	opt := attackOptions(t)
	m := open(t, opt)
	a := inmateOf(t, m, "inside", "default")
	cgroups := a.sh(t, "cat /proc/self/cgroup")
	if strings.Contains(cgroups, opt.Cgroup) || strings.Contains(cgroups, string(a.ID)) || cgroups == "" {
		t.Errorf("a run is in\n%s", cgroups)
	}
	mounts := a.sh(t, "cat /proc/self/mountinfo")
	for _, dir := range []string{"profiles", "bin"} {
		p := filepath.Join(opt.State, dir)
		expect.True(t, !strings.Contains(mounts, p), "mountinfo names %s:\n%s", p, mounts)
	}
}

// TestSettingsInside: a session has the settings that programs of the host find in /etc,
// and cannot write to them.
func TestSettingsInside(t *testing.T) {
	m := open(t, attackOptions(t))
	a := inmateOf(t, m, "settings", "default")
	found := 0
	for _, pattern := range []string{"/etc/fonts/fonts.conf", "/etc/java-*/security/java.security", "/etc/chromium.d/*", "/etc/xml/catalog", "/etc/ssl/openssl.cnf", "/etc/mime.types"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if fi, err := os.Stat(f); err != nil || fi.Mode().Perm()&0o004 == 0 {
				continue
			}
			found++
			outcomes(t, "read "+f, strings.Fields(a.try(t, "read", f))[0], "ok")
			outcomes(t, "write "+f, a.try(t, "open-write", f), "EROFS EACCES")
		}
	}
	expect.True(t, found != 0,
		"this host has no settings to look at: want at least /etc/ssl/openssl.cnf")
	if _, err := os.Stat("/usr/bin/java"); err == nil {
		got := a.sh(t, "java -XX:+UseSerialGC -Xmx32m -version 2>&1")
		expect.True(t, strings.Contains(got, "version"), "java says %s", got)
	}
}

// TestSanitizersAndAgent: a program of AddressSanitizer ends well, and ssh-agent, which is
// set-group-id on Debian, starts by its name and holds a key.
func TestSanitizersAndAgent(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "sanitizers", "default")
	for program, script := range map[string]string{
		"gcc":       `echo 'int main(){return 0;}' >m.c && gcc -fsanitize=address m.c -o m && ./m && gcc -fsanitize=leak m.c -o m && ./m`,
		"ssh-agent": `eval $(ssh-agent) && ssh-keygen -qt ed25519 -N "" -f k && ssh-add -q k && ssh-add -l | grep -c ED25519 && ssh-agent -k`,
	} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("the host has no %s", program)
			continue
		}
		r := run(t, m, c.ID, script)
		expect.True(t, r.Exit == 0, "%s: exit %d: %s %s", program, r.Exit, r.Stdout, r.Stderr)
	}
}

// TestRuntimesFitTheChat: the heaps of runtimes stay below the chat's memory_max, and their workers
// below its CPU quota, in a run and in the terminal. A program that makes garbage ends by itself.
func TestRuntimesFitTheChat(t *testing.T) {
	opt := options(t)
	limits := chat.DefaultLimits()
	limits.MemoryMax, limits.CPUQuota, limits.CPUPeriod = 512<<20, chat.Duration(time.Second/10), chat.Duration(time.Second/10)
	opt.Profiles["sized"] = chat.Profile{Name: "sized", Limits: limits, Commands: []string{"*"}, Env: map[string]string{"CARGO_BUILD_JOBS": "7"}}
	m := open(t, opt)
	c := create(t, m, "sized", "sized")
	tried := 0
	for _, r := range []struct {
		program, heap string
		least, most   int
	}{
		{"node", `node -p 'require("v8").getHeapStatistics().heap_size_limit'`, 256 << 20, 512 << 20},
		{"java", `java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2=="MaxHeapSize" {print $4}'`, 64 << 20, 256 << 20},
		{"java", `java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '$2=="ActiveProcessorCount" {print $4}'`, 1, 1},
		{"node", `node -p 'require("os").cpus().length'`, 1, 1},
		{"node", `node --input-type=module -e 'import {availableParallelism as n} from "os"; console.log(n())'`, 1, 1},
		{"node", `node -p 'require("os").totalmem()'`, 512 << 20, 512 << 20},
		{"python3", `/usr/bin/python3 -c 'import os; print(os.cpu_count())'`, 1, 1},
		{"free", "free -b | awk '/Mem/ {print $2}'", 512 << 20, 512 << 20},
		{"getconf", "getconf _NPROCESSORS_ONLN", 1, 1},
		{"nproc", "nproc", 1, 1},
		{"sh", "echo $GOMEMLIMIT", 256 << 20, 512 << 20},
		{"sh", "echo $GOMAXPROCS", 1, 1},
		{"sh", "echo $CARGO_BUILD_JOBS", 7, 7}, // the profile's
	} {
		if _, err := exec.LookPath(r.program); err != nil {
			t.Logf("the host has no %s", r.program)
			continue
		}
		tried++
		out := strings.TrimSpace(run(t, m, c.ID, r.heap).Stdout)
		if n, err := strconv.Atoi(out); err != nil || n < r.least || n > r.most {
			t.Errorf("%s: %s, want %d to %d", r.heap, out, r.least, r.most)
		}
	}
	expect.True(t, tried >= 5, "want at least nproc and sh to ask")
	if _, err := exec.LookPath("node"); err == nil {
		// It holds 120 MiB, and makes 700 MiB of garbage.
		const garbage = `node -e 'const q=[];for(let i=0;i<10000;i++){q.push(Array.from({length:9000},(_,k)=>k+i+.5));` +
			`if(q.length>1750)q.shift()}console.log("done")'`
		r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: garbage, Timeout: tryTimeout})
		expect.True(t, err == nil && r.Stdout == "done\n",
			"garbage: %q, exit %d, %v, %v", r.Stdout, r.Exit, r.Why, err)
	}
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: `echo "in the terminal: $NODE_OPTIONS"`, Enter: true}))
	waitScreen(t, m, c.ID, "in the terminal: --max-old-space-size=336")
}
