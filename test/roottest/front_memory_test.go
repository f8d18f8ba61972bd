package roottest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// greedyName ends the name of this program where it is a front that takes memory.
const greedyName = "greedy-front"

// greedyFront takes half more than a front may have.
func greedyFront() int {
	fmt.Fprintln(os.Stderr, "GREEDY begins")
	var all [][]byte
	for range 1536 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i)
		}
		all = append(all, b)
	}
	fmt.Fprintln(os.Stderr, "GREEDY FAIL has", len(all), "MiB")
	select {}
}

// TestFrontMemory: a front has a cgroup of its own, beside chatd's and the chats', with a bound on
// memory and tasks. One that takes more is ended, and chatd-root goes on.
func TestFrontMemory(t *testing.T) {
	if onHost() {
		t.Skip("this daemon is in no unit with Delegate=yes: test/vagrant looks at chatd.service")
	}
	d := startDaemon(t, options(t), "")
	front, root := frontOf(t, d.cmd.Process.Pid), d.cmd.Process.Pid
	for file, want := range map[string]string{"memory": "1073741824", "pids": "512"} {
		group, its := groupWith(t, front, file), groupWith(t, root, file)
		expect.True(t, group != its && strings.HasSuffix(group, ".front"),
			"%s: the front is in %s, chatd-root in %s", file, group, its)
		expect.Equal(t, boundIn(t, group, file), want, "%s of the front", file)
	}
	d.kill()

	opt := options(t)
	dir := filepath.Dir(opt.State)
	self := must.Get(os.Executable())(t)
	program := filepath.Join(dir, greedyName)
	out, err := exec.Command("cp", self, program).CombinedOutput()
	must.True(t, err == nil, "%v: %s", err, out)
	log := must.Get(os.Create(filepath.Join(dir, "chatd.log")))(t)
	defer log.Close()
	cmd := exec.Command(programs.root, "serve", "--config", configFile(t, opt), "--front", program)
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var said string
	if !comes(func() bool {
		b := must.Get(os.ReadFile(log.Name()))(t)
		said = string(b)
		return strings.Contains(said, "the front ended and is started again")
	}) || strings.Contains(said, "GREEDY FAIL") || !strings.Contains(said, "signal: killed") {
		t.Errorf("chatd-root says:\n%s", said)
	}
	must.Do(t, cmd.Process.Signal(syscall.SIGTERM))
	must.Do(t, cmd.Wait())
}

// groupWith is the directory of the cgroup in which a controller bounds a process.
func groupWith(t *testing.T, pid int, controller string) string {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup"))(t)
	unified := ""
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch f[1] {
		case controller:
			return filepath.Join("/sys/fs/cgroup", controller, f[2])
		case "":
			unified = f[2]
		}
	}
	return filepath.Join("/sys/fs/cgroup", unified)
}

// boundIn is the bound of a controller in a cgroup of either version.
func boundIn(t *testing.T, dir, controller string) string {
	t.Helper()
	for _, file := range []string{controller + ".max", controller + ".limit_in_bytes"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	t.Errorf("no bound of %s in %s", controller, dir)
	return ""
}
