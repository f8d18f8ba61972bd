package roottest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestServeLeavesNothing: a chatd without systemd that is ended leaves its enforcer and its cgroups
// to a session that lives on, and nothing when there is none; when that session ends, the enforcer
// does.
func TestServeLeavesNothing(t *testing.T) {
	if onHost() {
		t.Skip("the enforcer and the slice are units of systemd's")
	}
	leaveOrphansToInit(t)
	opt := ruledOptions(t, "access: {useDefaults: false}")
	config, rules := configFile(t, opt), filepath.Join(filepath.Dir(opt.State), "rules.yaml")
	f, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
	must.Do(t, err)
	_, err = fmt.Fprintf(f, "profiles:\n  ruled:\n    access_file: %s\n    commands: ['*']\n", rules)
	must.Do(t, errors.Join(err, f.Close(), os.WriteFile(rules, []byte("access: {useDefaults: false, deny: ['**/.env']}"), 0o600)))
	enforcers := func() string {
		out, _ := exec.Command("pgrep", "-f", "^[^ ]*chatd-enforce --dir "+opt.Run+"/keeper").Output()
		return strings.TrimSpace(string(out))
	}
	d := startDaemonOn(t, config)
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "leaves", Profile: "ruled"})
	must.Do(t, err)
	for _, pid := range strings.Fields(enforcers()) {
		expect.Equal(t, string(must.Get(os.ReadFile("/proc/"+pid+"/comm"))(t)), "chatd-enforce\n",
			"top shows the enforcer as")
	}
	end := func() {
		must.Do(t, d.cmd.Process.Signal(syscall.SIGTERM))
		expect.Equal(t, d.ended(t), 0, "chatd ended with")
	}
	end()
	expect.True(t, enforcers() != "" && len(baseCgroups(t, opt.Cgroup)) != 0,
		"with a session that lives on its enforcer or its cgroups are gone")
	must.Do(t, syscall.Kill(initOf(t, opt, c.ID), syscall.SIGKILL)) // bubblewrap, pid 1 inside
	until(t, "the enforcer of a session that ended ends", func() bool { return enforcers() == "" })
	d = startDaemonOn(t, config)
	must.Do(t, d.Reap(t.Context(), c.ID))
	end()
	until(t, "the enforcer without a session ends", func() bool { return enforcers() == "" })
	if left := baseCgroups(t, opt.Cgroup); len(left) > 0 {
		t.Errorf("left are the cgroups %v", left)
	}
}

// baseCgroups are the cgroups of a daemon of that name, except for that of the process itself.
func baseCgroups(t *testing.T, name string) (dirs []string) {
	t.Helper()
	must.Do(t, filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == name {
			dirs = append(dirs, path)
		}
		return nil
	}))
	return dirs
}

// initOf is the pid of the session's init process, as chatd recorded it.
func initOf(t *testing.T, opt provision.Options, id chat.ID) int {
	t.Helper()
	b := must.Get(os.ReadFile(filepath.Join(opt.Run, "sessions", string(id), "session.json")))(t)
	var saved struct {
		Init struct {
			PID int `json:"pid"`
		} `json:"leader"`
	}
	must.Do(t, json.Unmarshal(b, &saved))
	return saved.Init.PID
}
