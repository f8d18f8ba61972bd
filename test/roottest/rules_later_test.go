package roottest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const laterRules = `
access:
  useDefaults: true
  deny: ["~/work/client/**", "/\\.pem$/"]
  rules:
    - {deny: "~/conf", ops: [write, edit]}
    - {deny: "**/*.conf", ops: [read, write, edit]}
`

// TestRulesLater: files that another process makes after the session has begun are denied like
// earlier ones; without rules they can be opened.
func TestRulesLater(t *testing.T) {
	for _, ruled := range []bool{true, false} {
		t.Run(fmt.Sprintf("rules=%t", ruled), func(t *testing.T) {
			rules := laterRules
			if !ruled {
				rules = "access: {useDefaults: false, deny: [/nowhere/at/all]}"
			}
			m := open(t, ruledOptions(t, rules))
			c := sleeper(t, m, "later")
			putDir(t, c, "data")
			putFile(t, c, "twice/key", secret)
			wake(t, m, c.ID)
			laterCases(t, m, c, ruled)
		})
	}
}

// laterCases has one subtest for each way in which a file comes to be denied later.
func laterCases(t *testing.T, m *manager, c chat.Chat, ruled bool) {
	check := func(t *testing.T, command string) {
		t.Helper()
		if ruled {
			refused(t, m, c, "%s", command)
		} else if got := tells(t, m, c, "%s", command); !strings.Contains(got, secret) {
			t.Errorf("without rules %s says %s", command, got)
		}
	}
	in := func(name string) string { return filepath.Join(c.Home, name) }
	for _, tt := range []struct {
		name string
		make func(t *testing.T)
		try  []string
	}{
		{"a file", func(t *testing.T) { putFile(t, c, "data/.env", secret) }, []string{"cat data/.env", "cd data; dd if=.env", "cat /proc/self/cwd/data/.env", "ln -s data/.env l1; cat l1", "cp data/.env c1 && cat c1"}},
		{"a directory", func(t *testing.T) { putFile(t, c, "data/secrets/k", secret) }, []string{"cat data/secrets/k", "tar cf - data/secrets", "cd data/secrets && cat k"}},
		{"renamed to match by others", func(t *testing.T) {
			putFile(t, c, "data/innocent", secret)
			must.Do(t, os.Rename(in("data/innocent"), in("data/x.pem")))
		}, []string{"cat data/x.pem", "mv data/x.pem data/y && cat data/y"}},
		{"directory renamed to match by others", func(t *testing.T) {
			putFile(t, c, "harmless/k", secret)
			must.Do(t, os.Rename(in("harmless"), in("secrets")))
		}, []string{"cat secrets/k", "mv secrets other && cat other/k", "mv other/k k2 && cat k2"}},
		{"renamed by the chat", func(t *testing.T) { putFile(t, c, "data/r/.env", secret) },
			[]string{"mv data/r/.env data/r/plain && cat data/r/plain", "mv data/r data/s && cat data/s/plain"}},
		{"parent renamed by the chat", func(t *testing.T) { putFile(t, c, "work/client/f", secret) },
			[]string{"mv work w2; cat w2/client/f", "mv w2/client w2/c3; cat w2/c3/f", "mv w2/c3/f w2/g; cat w2/g"}},
		{"hard link by others", func(t *testing.T) {
			putFile(t, c, "data/h/.env", secret)
			must.Do(t, os.Link(in("data/h/.env"), in("data/h/other")))
		}, []string{"cat data/h/.env", "cat data/h/other"}},
		{"hard link under a denied name", func(t *testing.T) { must.Do(t, os.Link(in("twice/key"), in("twice/.env"))) }, []string{"cat twice/.env"}},
		{"hard link by the chat", func(t *testing.T) {
			f := putFile(t, c, "data/i/.env", secret)
			must.Do(t, os.Chown(f, int(c.UID), int(c.UID)))
		}, []string{"ln data/i/.env data/i/plain; cat data/i/plain"}},
		{"replaced by a rename over it", func(t *testing.T) {
			putFile(t, c, "data/v/.env", "old")
			time.Sleep(300 * time.Millisecond) // a mask stands
			putFile(t, c, "data/v/new", secret)
			must.Do(t, os.Rename(in("data/v/new"), in("data/v/.env")))
		}, []string{"cat data/v/.env", "mv data/v/.env data/v/p; cat data/v/p"}},
		{"moved by the chat to a denied name and back", func(t *testing.T) { putFile(t, c, "data/m/.env", secret) },
			[]string{"mv data/m/.env data/m/a; mv data/m/a data/m/b; cat data/m/b"}},
		{"executed", func(t *testing.T) {
			f := putFile(t, c, "data/secrets/run", "#!/bin/sh\necho "+secret+"\n")
			must.Do(t, os.Chmod(f, 0o777))
		}, []string{"data/secrets/run", "sh data/secrets/run"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.make(t)
			if !ruled {
				tt.try = tt.try[:1]
			}
			for _, command := range tt.try {
				check(t, command)
			}
		})
	}
	t.Run("what is around it", func(t *testing.T) { laterBeside(t, m, c) })
	t.Run("read-only, made later", func(t *testing.T) { laterReadOnly(t, m, c, "conf/x", ruled) })
	t.Run("read-only by a pattern, made later", func(t *testing.T) { laterReadOnly(t, m, c, "data/n/x.conf", ruled) })
}

// laterReadOnly: what comes to be read-only is refused altogether until a mount makes it so.
func laterReadOnly(t *testing.T, m *manager, c chat.Chat, name string, ruled bool) {
	t.Helper()
	file := putFile(t, c, name, secret)
	if !ruled {
		got := tells(t, m, c, "echo over > %s; cat %[1]s", name)
		expect.True(t, strings.Contains(got, "over"), "without rules a write says %q", got)
		return
	}
	for end := time.Now().Add(longEnough); time.Now().Before(end); {
		got := tells(t, m, c, "cat %s", name)
		if w := tells(t, m, c, "echo over > %s", name); !strings.Contains(w, "Read-only") && !strings.Contains(w, "not permitted") {
			t.Fatalf("a write says %q", w)
		}
		if strings.Contains(got, secret) {
			refused(t, m, c, "rm -f %s", name)
			refused(t, m, c, "echo own > own; mv -f own %s", name)
			expect.Equal(t, string(must.Get(os.ReadFile(file))(t)), secret, "the file holds")
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("it never came to be readable")
}

// TestRulesRaceOfNames: a chat that moves a file away as soon as it appears reads it
// under no name.
func TestRulesRaceOfNames(t *testing.T) {
	m := open(t, ruledOptions(t, laterRules))
	c := sleeper(t, m, "names")
	putDir(t, c, "data")
	wake(t, m, c.ID)
	ended := going(func() chat.RunResult {
		r, _ := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Command: `i=0; touch data/began; while [ ! -e data/stop ]; do
			for d in data/[0-9]*; do mv $d data/x$i 2>/dev/null && mv data/x$i/.env data/x$i/p 2>/dev/null && cat data/x$i/p; i=$((i+1)); done; done 2>&1 | tee -a data/said`, Timeout: tryTimeout})
		return r
	})
	said := func() string {
		b, err := os.ReadFile(filepath.Join(c.Home, "data/said"))
		must.Do(t, ignoreGone(err))
		return string(b)
	}
	until(t, "the chat begins", exists(filepath.Join(c.Home, "data/began")))
	end := time.Now().Add(longEnough)
	waits := func() bool { // it goes on, and has moved nothing away yet
		return len(ended) == 0 && !strings.Contains(said(), "not permitted") && time.Now().Before(end)
	}
	for i := 0; i < 300 || waits(); i++ {
		dir := filepath.Join(c.Home, "data", fmt.Sprint(i))
		must.Do(t, os.Mkdir(dir, 0o777))
		// The chat may have moved the directory by now.
		must.Do(t, ignoreGone(os.Chown(dir, int(c.UID), int(c.UID))))
		must.Do(t, ignoreGone(os.WriteFile(filepath.Join(dir, ".env"), []byte(secret), 0o644)))
		time.Sleep(time.Millisecond)
	}
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "data/stop"), nil, 0o644))
	r := <-ended
	expect.True(t, !strings.Contains(r.Stdout+r.Stderr, secret),
		"the chat read it: %d times", strings.Count(r.Stdout, secret))
	moved := strings.Count(r.Stdout, "not permitted")
	t.Logf("%d files were moved away and refused", moved)
	expect.True(t, moved != 0, "the chat moved nothing away: the race was not run")
}

// TestRulesWithoutChatd: the rules hold while chatd is down, when the enforcer's worker is killed,
// and for the next chatd.
func TestRulesWithoutChatd(t *testing.T) {
	opt := ruledOptions(t, laterRules)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := ruled(t, m, "down", ".env")
	putDir(t, c, "loop")
	// What the worker was asked when it is killed is refused, be it sleep itself: the loop goes on.
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: `while :; do sleep 0.05; cat .env loop/.env loop/secrets/k loop/plain >> loop/out 2>> loop/err; date >> loop/ticks; done &`, Enter: true}))
	must.Do(t, m.Close()) // chatd is down
	putFile(t, c, "loop/.env", secret)
	ticks(t, c, 10)
	// Moved away immediately: only the enforcer's memory holds its old name.
	putFile(t, c, "loop/x/.env", secret)
	must.Do(t, os.Rename(filepath.Join(c.Home, "loop/x/.env"), filepath.Join(c.Home, "loop/plain")))
	ticks(t, c, 3)
	out, err := exec.Command("pkill", "-9", "-f", "^[^ ]*chatd-enforce --dir "+opt.Run+"/keeper --worker").CombinedOutput()
	must.True(t, err == nil, "no worker to kill: %v %s", err, out)
	putFile(t, c, "loop/secrets/k", secret)
	ticks(t, c, 10)
	b, err := os.ReadFile(filepath.Join(c.Home, "loop/out"))
	expect.True(t, err == nil && !strings.Contains(string(b), secret),
		"while chatd was down the chat read %q, %v", b, err)
	m = open(t, opt)
	got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
	t.Logf("after a worker that was killed the session is awake: %t", got.Awake)
	refused(t, m, c, "cat loop/.env")
	refused(t, m, c, "cat loop/secrets/k")
	refused(t, m, c, "cat loop/plain")
}

// ticks waits until the chat's loop has gone round n more times, or its session is gone.
func ticks(t *testing.T, c chat.Chat, n int) {
	t.Helper()
	size := func() int64 {
		fi, err := os.Stat(filepath.Join(c.Home, "loop/ticks"))
		if err != nil {
			return 0
		}
		return fi.Size() / 29
	}
	start := size()
	if comes(func() bool { return size() >= start+int64(n) || len(pidsOf(c.UID)) == 0 }) {
		return
	}
	out, _ := exec.Command("sh", "-c", "ls -la "+c.Home+"/loop; cat "+c.Home+"/loop/err | tail -5; ps -u "+fmt.Sprint(c.UID)+" -o pid,stat,wchan:30,args; ps ax | grep keep").CombinedOutput()
	t.Fatalf("the chat stands still: %s", out)
}

// TestRulesReload: new rules hold in a session that is awake, and old ones go; rules that
// cannot be kept change nothing.
func TestRulesReload(t *testing.T) {
	m := open(t, ruledOptions(t, "access: {useDefaults: false}"))
	c := ruled(t, m, "reload", "a/x", "a/b/y", "a/b/z", "c")
	for _, tt := range []struct{ rules, open, closed string }{
		{"access: {useDefaults: false}", "a/x a/b/y a/b/z c", ""},
		{"access: {useDefaults: false, deny: [~/a/b/y]}", "a/x a/b/z c", "a/b/y"},
		{"access: {useDefaults: false, deny: [~/a]}", "c", "a/x a/b/y a/b/z"},
		{"access: {useDefaults: false, deny: [~/a/b]}", "a/x c", "a/b/y a/b/z"},
		{"access: {useDefaults: false, deny: [~/a/b/z, ~/c]}", "a/x a/b/y", "a/b/z c"},
		{"access: {useDefaults: false, rules: [{deny: ~/a, ops: [write]}]}", "a/x a/b/y a/b/z c", ""},
		{"access: {useDefaults: false, deny: [~/a]}\nagents: {main: {access: {rules: [{allow: ~/a/b}]}}}", "a/b/y a/b/z c", "a/x"},
		{"access: {useDefaults: false}", "a/x a/b/y a/b/z c", ""},
	} {
		must.Do(t, reloadRules(t, m, tt.rules))
		for _, name := range strings.Fields(tt.open) {
			got := tells(t, m, c, "cat %s", name)
			expect.True(t, strings.Contains(got, secret), "%s: %s is closed: %s", tt.rules, name, got)
		}
		for _, name := range strings.Fields(tt.closed) {
			refused(t, m, c, "cat %s", name)
		}
		if strings.Contains(tt.rules, "write") && !strings.Contains(tells(t, m, c, "echo >> a/b/y"), "Read-only") {
			t.Error("what may not be written was written")
		}
	}
	must.Do(t, reloadRules(t, m, "access: {useDefaults: false, deny: [~/c]}"))
	expect.Says(t, reloadRules(t, m, `access: {rules: [{deny: /proc/self/environ}]}`),
		nil, "does not start without /proc", "rules that cannot be kept")
	refused(t, m, c, "cat c")
	if mounts := strings.TrimSpace(tells(t, m, c, "grep -c keeper /proc/self/mountinfo")); mounts != "0" && mounts != "1" {
		t.Errorf("masks that are left: %s", mounts) // one, of c, where the kernel reports no names
	}
}

// TestRulesParentRenamed: a mask follows its file when a directory around it is moved, by the chat
// or by another user.
func TestRulesParentRenamed(t *testing.T) {
	m := open(t, ruledOptions(t, `access: {useDefaults: false, deny: ["~/p/q/s"]}`))
	c := ruled(t, m, "parent", "p/q/s")
	refused(t, m, c, "cat p/q/s")
	got := tells(t, m, c, "mv p/q p/r && mv p o && ls o/r")
	expect.True(t, strings.Contains(got, "s"), "the chat cannot move a directory around a mask: %s", got)
	refused(t, m, c, "cat o/r/s")
	must.Do(t, os.Rename(filepath.Join(c.Home, "o"), filepath.Join(c.Home, "n")))
	refused(t, m, c, "cat n/r/s")
	refused(t, m, c, "mv n/r/s t && cat t")
	refused(t, m, c, "cp -r n copy && cat copy/r/s")
}

// laterBeside sees that what lies around a denied file can be used as before.
func laterBeside(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	putFile(t, c, ".env", secret)
	putFile(t, c, "data/around/.env", secret)
	for _, command := range []string{"ls . >/dev/null && echo fine", "ls data/around >/dev/null && echo fine",
		"echo x >beside && cat beside && echo fine", "echo x >data/around/beside && rm data/around/beside && echo fine"} {
		if got := tells(t, m, c, "%s", command); !strings.HasSuffix(strings.TrimSpace(got), "fine") {
			t.Errorf("beside a denied file %q says %q", command, got)
		}
	}
	content := "x"
	_, err := m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: "by-tool", Content: &content}, nil)
	expect.True(t, err == nil, "beside a denied file write_file: %v", err)
}
