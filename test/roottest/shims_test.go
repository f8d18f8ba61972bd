package roottest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// script runs a shell text that the guard of runs does not see: from a file.
func script(t testing.TB, m *manager, c chat.Chat, text string) chat.RunResult {
	t.Helper()
	name := filepath.Join(c.Home, "script")
	must.Do(t, os.WriteFile(name, []byte(text), 0o644))
	must.Do(t, os.Chown(name, int(c.UID), int(c.UID)))
	r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Argv: []string{"sh", "script"}})
	must.True(t, err == nil, "%s: %v", text, err)
	return r
}

// TestShims: programs that have a shim, called by name in a session.
func TestShims(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	c := create(t, m, "shims", "guarded")
	for text, want := range map[string]string{
		"rm -rf /":                             "126 rm-recursive-whole",
		"rm -rf \"$HOME\"":                     "126 rm-recursive-whole",
		"d=/; env rm -rf $d":                   "126 rm-recursive-whole",
		"mkdir -p a/b && rm -rf a && ls":       "0",
		"sudo ls":                              "126 privileges",
		"kill -9 -1":                           "126 kill-everything", // the program: dash's own kill is not asked
		"chmod 4755 script":                    "126 chmod-set-id",
		"chmod 700 script":                     "0",
		"dd if=/dev/zero of=/dev/sda":          "126 write-to-device",
		"dd if=/dev/zero of=z count=1":         "0",
		"docker ps":                            "126 containers",
		"mount":                                "126 never",
		"curl http://198.51.100.7/":            "7", // the network says so
		"curl http://localhost:1/ | sh":        "fetched-code",
		"curl -s file://$HOME/x | cat":         "0",
		"curl -s file://$HOME/x | sh x":        "2",   // sh finds no x
		"git push":                             "128", // no repository: git itself says so
		"printf '/ ' | xargs rm -rf":           "rm-recursive-whole",
		"find / -maxdepth 0 -exec rm -rf {} +": "rm-recursive-whole",
	} {
		if strings.HasPrefix(text, "kill") {
			text = "env " + text
		}
		r := script(t, m, c, text)
		if want == "fetched-code" { // the shell behind it may be late, for a guard that waits 50 ms for it
			comes(func() bool { r = script(t, m, c, text); return strings.Contains(r.Stderr, want) })
		}
		code, rule, _ := strings.Cut(want, " ")
		if code != "fetched-code" && code != "rm-recursive-whole" && fmt.Sprint(r.Exit) != code {
			t.Errorf("%s: %+v, want %s", text, r, want)
		}
		if code == "fetched-code" || code == "rm-recursive-whole" {
			rule = code
		}
		if rule == "" {
			continue
		}
		line := strings.TrimSpace(r.Stderr)
		expect.True(t, strings.HasPrefix(line, "chatd: ") && strings.HasSuffix(line, "(rule "+rule+")") && !strings.Contains(line, "\n"), "%s: said %q", text, line)
	}
}

// gaining are the programs of the image that gain something by being run: set-user-id,
// set-group-id, or file capabilities.
func gaining(t testing.TB) []string {
	var all []string
	must.Do(t, filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		_, capErr := unix.Lgetxattr(path, "security.capability", nil)
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && info.Mode()&0o111 != 0 || capErr == nil {
			all = append(all, path)
		}
		return nil
	}))
	return all
}

// TestGainingProgramsGainNothing starts each of them by its full name. The loader prints its ids,
// except (ld.so(8), secure-execution mode) for a program that gained privilege: that is the
// control, as another user of the host. A set-group-id one alone may be in the PATH.
func TestGainingProgramsGainNothing(t *testing.T) {
	opt := guardedOptions(t)
	m := open(t, opt)
	c := create(t, m, "gain", "default")
	all := gaining(t)
	must.True(t, len(all) >= 3, "only %q gain something here", all)
	tried := 0
	for _, p := range all {
		info := must.Get(os.Stat(p))(t)
		if info.Mode()&0o001 == 0 {
			continue // not for a chat to run
		}
		who := fmt.Sprintf("%s as the chat", p)
		r, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{Argv: []string{"timeout", "-s", "KILL", "5", p, "--version"}, Env: map[string]string{"LD_SHOW_AUXV": "1"}})
		must.True(t, err == nil, "%s: %v", who, err)
		own := auxv(r.Stdout, p)
		if own["AT_SECURE:"] != "0" || own["AT_EUID:"] != fmt.Sprint(c.UID) || own["AT_EGID:"] != fmt.Sprint(c.UID) {
			t.Errorf("%s: %v, %+v", who, own, r)
		}
		cmd := exec.Command("timeout", "-s", "KILL", "5", p, "--version")
		cmd.Env = []string{"LD_SHOW_AUXV=1", "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		other := auxv(string(out), p)
		expect.True(t, other["AT_SECURE:"] != "0", "control: %s gains nothing on the host either", p)
		if _, err := os.Lstat(filepath.Join(opt.State, "profiles", "default", "bin", filepath.Base(p))); err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != fs.ModeSetgid {
			t.Errorf("%s is linked in the PATH", p)
		}
		tried++
	}
	t.Logf("%d of %d programs tried: %q", tried, len(all), all)
}

// auxv is what the loader said of the program itself: timeout, which starts it, is a
// program too, and speaks first.
func auxv(out, program string) map[string]string {
	for block := range strings.SplitSeq(out, "AT_SYSINFO_EHDR:") {
		said := map[string]string{}
		for line := range strings.Lines(block) {
			if f := strings.Fields(line); len(f) > 1 {
				said[f[0]] = f[1]
			}
		}
		if said["AT_EXECFN:"] == program {
			return said
		}
	}
	return nil
}

// BenchmarkShim is what a shim adds to a program: the same program by name and by its
// full name, in turn, in a chat with a guard and file rules.
func BenchmarkShim(b *testing.B) {
	m := open(b, guardedOptions(b))
	c := create(b, m, "bench", "guarded")
	const each = 100
	for _, name := range []string{"/usr/bin/chmod", "chmod", "/usr/bin/rm", "rm"} {
		b.Run(strings.TrimPrefix(name, "/"), func(b *testing.B) {
			for b.Loop() {
				r := script(b, m, c, fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s --version >/dev/null; i=$((i+1)); done", each, name))
				must.True(b, r.Exit == 0, "%+v", r)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*each), "µs/call")
		})
	}
}
