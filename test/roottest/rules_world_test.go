package roottest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/must"
)

// secret is a text that no process of a session with rules may read.
const secret = "the-secret-of-somebody-else"

// ruledOptions are options whose profile ruled has these file rules.
func ruledOptions(t testing.TB, rules string) provision.Options {
	t.Helper()
	opt := options(t)
	edit(opt, "ruled", func(p *chat.Profile) { p.Limits.CPUQuota = 2 * p.Limits.CPUPeriod })
	opt.FileRules = map[string]*filerules.Policy{"ruled": policy(t, rules)}
	return opt
}

func policy(t testing.TB, rules string) *filerules.Policy {
	t.Helper()
	return must.Get(rulefile.Load("rules.yaml", []byte(rules)))(t)
}

// endEnforcer ends the enforcer that a test's daemon started: it would outlive the test.
func endEnforcer(t testing.TB, opt provision.Options) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(opt.Run, "keeper")); errors.Is(err, fs.ErrNotExist) {
		return // none was started
	}
	if b, err := os.ReadFile(filepath.Join(opt.Run, "keeper", "log")); err == nil && len(b) > 0 {
		t.Logf("the enforcer says:\n%s", b)
	}
	// A worker takes the place of its holder: both are stopped first, and what they began
	// meanwhile.
	var stopped []string
	for {
		all := enforcersOf(opt)
		if slices.Equal(all, stopped) {
			break
		}
		signalAll(all, syscall.SIGSTOP)
		stopped = all
	}
	signalAll(stopped, syscall.SIGKILL)
}

// enforcersOf are the processes of a world's enforcer.
func enforcersOf(opt provision.Options) []string {
	out, _ := exec.Command("pgrep", "-f", "^[^ ]*chatd-enforce --dir "+opt.Run+"/keeper").Output()
	return strings.Fields(string(out))
}

func signalAll(pids []string, s syscall.Signal) {
	for _, pid := range pids {
		if n, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(n, s) // one that has ended meanwhile needs none
		}
	}
}

// sleeper is a chat with rules that is asleep, so that its home can be filled.
func sleeper(t testing.TB, m *manager, external string) chat.Chat {
	t.Helper()
	return must.First(m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Profile: "ruled", Awake: new(false)}))(t)
}

// ruled is an awake chat with rules, in whose home the files were when its session began.
func ruled(t testing.TB, m *manager, external string, files ...string) chat.Chat {
	t.Helper()
	c := sleeper(t, m, external)
	for _, name := range files {
		putFile(t, c, name, secret)
	}
	return wake(t, m, c.ID)
}

// reloadRules gives the profile ruled other rules.
func reloadRules(t testing.TB, m *manager, rules string) error {
	t.Helper()
	return m.Reload(operator(t.Context()), map[string]*filerules.Policy{"ruled": policy(t, rules)})
}

// withoutLandlock leaves it out: it would keep closed what a reload opens.
func withoutLandlock(opt provision.Options) provision.Options {
	opt.Without = append(opt.Without, chat.LayerLandlock)
	opt.AllowMissing = append(opt.AllowMissing, chat.LayerLandlock, chat.LayerNetwork)
	return opt
}

// srvDir is a directory of the host that chats may be shown, until the test ends.
func srvDir(t testing.TB) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("/srv", "shown-"))(t)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chmod(dir, 0o755))
	return dir
}

func wake(t testing.TB, m *manager, id chat.ID) chat.Chat {
	t.Helper()
	return must.Get(m.Wake(operator(t.Context()), id))(t)
}

// putFile makes a file of root's that the chat may read and write as far as modes go, and
// the directories to it, which are the chat's.
func putFile(t testing.TB, c chat.Chat, name, content string) string {
	t.Helper()
	file := filepath.Join(c.Home, name)
	putDir(t, c, filepath.Dir(name))
	must.Do(t, errors.Join(os.WriteFile(file, []byte(content), 0o666), os.Chmod(file, 0o666)))
	return file
}

// putDir makes directories of the chat's.
func putDir(t testing.TB, c chat.Chat, name string) {
	t.Helper()
	at := c.Home
	for part := range strings.SplitSeq(name, "/") {
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err == nil {
			must.Do(t, os.Chown(at, int(c.UID), int(c.UID)))
		}
	}
}

// tells runs a shell command in the chat and returns what it printed, both ways.
func tells(t testing.TB, m *manager, c chat.Chat, command string, args ...any) string {
	t.Helper()
	r := run(t, m, c.ID, fmt.Sprintf(command, args...))
	return r.Stdout + r.Stderr
}

// refused fails unless the command fails and prints nothing of the secret.
func refused(t testing.TB, m *manager, c chat.Chat, command string, args ...any) {
	t.Helper()
	r := run(t, m, c.ID, fmt.Sprintf(command, args...))
	if strings.Contains(r.Stdout+r.Stderr, secret) || r.Exit == 0 {
		t.Errorf("%s: exit %d, %s%s", fmt.Sprintf(command, args...), r.Exit, r.Stdout, r.Stderr)
	}
}
