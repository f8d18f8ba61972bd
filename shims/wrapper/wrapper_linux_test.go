package wrapper

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/guard"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestShimChecks: what each kind of shim denies, by which rule, and what it lets run.
func TestShimChecks(t *testing.T) {
	rules, err := rulefile.Load("rules", []byte(`access: {useDefaults: false, rules: [{deny: "~/keys/**"}]}`))
	must.Do(t, err)
	p := plan.ShimPolicy{Home: "/home/u", Guard: chat.DefaultGuard(), Rules: rules.Compiled()}
	p.Guard.CustomAllowPatterns = []chat.Pattern{{Text: "docker ps"}}
	p.Guard.CustomDenyPatterns = []chat.Pattern{{Text: "^git push"}}
	for _, c := range []struct {
		policy plan.ShimPolicy
		line   string
		rule   string
	}{
		{p, "rm -rf /", "rm-recursive-whole"}, {p, "rm -rf build", ""}, {p, "rm -rf /home/u", "rm-recursive-whole"}, {p, "rm x", ""},
		{p, "dd if=/dev/zero of=x", ""}, {p, "dd of=/dev/sda", "write-to-device"}, {p, "mkfs.ext4 x", "format"},
		{p, "chmod 4755 x", "chmod-set-id"}, {p, "chmod 755 x", ""}, {p, "kill -9 -1", "kill-everything"}, {p, "kill 77", ""},
		{p, "sudo ls", "privileges"}, {p, "docker run x", "containers"}, {p, "docker ps", ""}, {p, "mount", "never"}, {p, "apt install x", "packages"}, {p, "apt list", ""},
		{p, "git push", "^git push"}, {p, "git pull", ""}, {p, "rm keys/a", "deny ~/keys/**"}, {p, "rm keyring", ""}, {p, "dd if=keys/a of=b", "deny ~/keys/**"},
		// The network refuses hosts, and knows which are the chat's own.
		{p, "curl http://0.0.0.0:8001/", ""}, {p, "wget -qO- http://my-own-name:8001", ""},
		{p, "curl https://198.51.100.1", ""}, {p, "ssh u@198.51.100.1 ls", ""},
		{p, "git clone https://198.51.100.1/x", ""}, {p, "npm install lodash", ""},
		{p, "pip install absent", ""},
		{plan.ShimPolicy{}, "rm -rf /", ""}, {plan.ShimPolicy{}, "sudo ls", "never"}, {plan.ShimPolicy{}, "curl http://1.2.3.4", ""},
	} {
		argv := strings.Fields(c.line)
		s := must.Get(newShim(c.policy, argv, "/home/u"))(t)
		d, err := s.check()
		if d.Rule != c.rule || err != nil || (c.rule == "") != (d.Reason == "") || (c.rule == "") != (d.Instead == "") {
			t.Errorf("%s: %+v, %v, want rule %q", c.line, d, err, c.rule)
		}
	}
}

// TestRefusalsSayWhy: each names a rule that there is.
func TestRefusalsSayWhy(t *testing.T) {
	for _, name := range plan.ShimNames() {
		rule, _ := plan.Never(name)
		reason, instead := guard.Why(rule)
		expect.True(t, reason != "" && instead != "", "%s: there is no rule %s", name, rule)
	}
}

// TestRunShim is the program under a command's name: one line and 126, or the real
// program, which is never itself.
func TestRunShim(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, plan.ProgramName)
	if _, err := exec.LookPath("go"); err != nil && os.Getenv("CHATD_TEST_REQUIRE") != "all" {
		t.Skip("needs go: to build chatd-shim")
	}
	must.Run(t, exec.Command("go", "build", "-o", exe, "../../cmd/chatd-shim"))
	for _, name := range []string{"sudo", "rm", "npm"} {
		must.Do(t, os.Symlink(exe, filepath.Join(dir, name)))
	}
	call := func(args ...string) (string, int) {
		cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
		cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "A=b"}
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := call("sudo", "-n", "true")
	expect.True(t, code == plan.ExitRefused && strings.HasPrefix(out, "chatd: sudo refused: ") && strings.Count(out, "\n") == 1 && strings.Contains(out, "(rule never)"), "sudo: %d, %q", code, out)
	must.Do(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	out, code = call("rm", "f")
	expect.True(t, code == 0 && out == "", "rm: %d, %q", code, out)
	expect.True(t, expect.Err(os.Stat(filepath.Join(dir, "f"))) != nil, "rm did not run")
	if out, code := call("rm", "f"); code != 1 || !strings.Contains(out, "cannot remove 'f'") {
		t.Errorf("rm of nothing: %d, %q", code, out)
	}
	if _, err := exec.LookPath("/usr/bin/npm"); err != nil {
		out, code := call("npm")
		expect.True(t, code == 127 && strings.Count(out, "\n") == 1, "what is not there: %d, %q", code, out)
	}
}
