package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// workerOf is the enforcer's worker, once there is another than was.
func workerOf(t *testing.T, opt provision.Options, was int) (pid int) {
	t.Helper()
	until(t, "a worker", func() bool {
		args := "^[^ ]*chatd-enforce --dir " + opt.Run + "/keeper --worker"
		out, _ := exec.Command("pgrep", "-f", args).Output()
		pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		return pid != 0 && pid != was
	})
	return pid
}

// masksAt are the mounts of bubblewrap's masks in the chat's session, as its mountinfo has them.
func masksAt(t *testing.T, initPID string) (lines []string) {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/" + initPID + "/mountinfo"))(t)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "/masks/closed-") {
			lines = append(lines, line)
		}
	}
	return lines
}

// killAtMount kills the worker when the first mount of a session comes or goes. It reads them
// again and again: poll(2) of mountinfo tells of no umount on some kernels.
func killAtMount(initPID, before string, worker int) error {
	for end := time.Now().Add(longEnough); time.Now().Before(end); { // at once: a reload is soon done
		now, err := os.ReadFile("/proc/" + initPID + "/mountinfo")
		if err != nil || string(now) != before {
			return errors.Join(err, unix.Kill(worker, unix.SIGKILL))
		}
	}
	return errors.New("no mount came or went")
}

// TestRulesWorkerKilled: in a session that began with bubblewrap's masks every denied path stays
// denied while the enforcer's worker is killed and another takes the session up, also when that
// happens in the midst of a reload. The masks stay the same mounts, and reloads open and close
// what they lie over as before.
func TestRulesWorkerKilled(t *testing.T) {
	needsRoot(t)
	shared := filepath.Join("/srv", fmt.Sprintf("worker-%d-%d", os.Getpid(), worlds.Load()))
	t.Cleanup(func() { os.RemoveAll(shared) })
	must.Do(t, errors.Join(os.MkdirAll(shared+"/secret", 0o755),
		os.WriteFile(shared+"/secret/f", []byte(secret), 0o644)))
	const count = 50 // directories that a reload opens or closes, one mount after the other
	opened := `access: {useDefaults: false, deny: ["~/note", /data/secret, "**/.env"]}`
	closed := strings.Replace(opened, "[", `["~/keys", `, 1)
	for i := range count {
		dir := fmt.Sprintf("%s/many/%d", shared, i)
		must.Do(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/k", []byte(secret), 0o644)))
		closed = strings.Replace(closed, "[", fmt.Sprintf(`["/data/many/%d", `, i), 1)
	}
	opt := ruledOptions(t, closed)
	opt.Without = append(opt.Without, chat.LayerLandlock) // it would keep closed what a reload opens
	opt.AllowMissing = append(opt.AllowMissing, chat.LayerLandlock, chat.LayerNetwork)
	p := opt.Profiles["ruled"]
	p.ExposePaths = []chat.Expose{{Source: shared, Target: "/data", Mode: chat.ReadOnly}}
	opt.Profiles["ruled"] = p
	m := open(t, opt)
	defer endEnforcer(t, opt)
	c := sleeper(t, m, "worker")
	for _, name := range []string{"keys/k", "note", "w/.env", "loop/later/.env"} {
		putFile(t, c, name, secret)
	}
	wake(t, m, c.ID)
	denied := []string{"note", "/data/secret/f", "w/.env", "loop/later/.env"}
	loop := "while :; do sleep 0.02; cat " + strings.Join(denied, " ") + " loop/n*/.env >> loop/out" +
		" 2>> loop/err; cat keys/k >> loop/keys 2>> loop/err; date >> loop/ticks; done &"
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Enter: true, Text: loop}))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(c.Home, "loop", name))
		must.Do(t, ignoreGone(err))
		return string(b)
	}
	initPID := sessionInit(t, c)
	masks := masksAt(t, initPID)
	if want := count + 1; len(masks) != want {
		t.Fatalf("bubblewrap masks %d paths, want %d: %q", len(masks), want, masks)
	}
	worker := workerOf(t, opt, 0)
	for i := range 4 {
		must.Do(t, unix.Kill(worker, unix.SIGKILL))
		putFile(t, c, fmt.Sprintf("loop/n%d/.env", i), secret)
		worker = workerOf(t, opt, worker)
		ticks(t, c, 3)
		refused(t, m, c, "cat %s keys/k loop/n*/.env", strings.Join(denied, " "))
		if got := masksAt(t, initPID); !slices.Equal(got, masks) {
			t.Errorf("after kill %d the masks are %q, were %q", i, got, masks)
		}
	}
	expect.Equal(t, (read("out") + read("keys")), "", "while workers were killed the chat read")
	reload := func(rules string) error {
		policies := map[string]*filerules.Policy{"ruled": policy(t, rules)}
		return m.Reload(operator(t.Context()), policies)
	}
	for i := range 6 {
		ended := make(chan error, 1)
		before := must.Get(os.ReadFile("/proc/" + initPID + "/mountinfo"))(t)
		go func() { ended <- killAtMount(initPID, string(before), worker) }()
		must.Do(t, reload([]string{opened, closed}[i%2]))
		must.Do(t, <-ended)
		worker = workerOf(t, opt, worker)
		refused(t, m, c, "cat %s", strings.Join(denied, " "))
		want := strings.Repeat(secret, []int{count + 1, 0}[i%2])
		expect.Equal(t, tells(t, m, c, "cat keys/k /data/many/*/k 2>/dev/null"), want,
			"after reload %d", i)
	}
	expect.True(t, initPID == sessionInit(t, c), "the session is another")
	expect.Equal(t, read("out"), "", "the chat read")
}
