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
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// frontOf is the process that chatd-root keeps for callers.
func frontOf(t testing.TB, root int) (pid int) {
	t.Helper()
	must.True(t, comes(func() bool { pid = childNamed(root, "chatd-front"); return pid != 0 }), "there is no front")
	return pid
}

// statusOf is a line of /proc/PID/status (proc(5)).
func statusOf(t testing.TB, pid int, key string) string {
	t.Helper()
	return must.Get(statusField(pid, key))(t)
}

// TestFrontHasNothing: the process that reads callers' text has a user of its own, no group, no
// capability, no way to one, a filter of system calls, and namespaces without a network.
func TestFrontHasNothing(t *testing.T) {
	d := startDaemon(t, options(t), "")
	front := frontOf(t, d.cmd.Process.Pid)
	for key, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		"Groups": "", "NoNewPrivs": "1", "Seccomp": "2",
	} {
		expect.Equal(t, statusOf(t, front, key), want, "%s", key)
	}
	for uid := range strings.FieldsSeq(statusOf(t, front, "Uid")) {
		n, err := strconv.Atoi(uid)
		expect.True(t, err == nil && n != 0 && (n < int(testUIDs.Low) || n > int(testUIDs.High)), "one of its uids is %s", uid)
	}
	for _, ns := range []string{"net", "ipc"} {
		its := must.Get(os.Readlink("/proc/" + strconv.Itoa(front) + "/ns/" + ns))(t)
		own := must.Get(os.Readlink("/proc/self/ns/" + ns))(t)
		expect.True(t, its != own, "it shares the %s namespace", ns)
	}
	for _, c := range []string{"/proc/self/root", "/proc/self/exe"} { // what a tracer could read
		expect.Is(t, expect.Err(os.Readlink(strings.Replace(c, "self", strconv.Itoa(front), 1))), nil,
			"root cannot look at it")
	}
}

// TestFrontRendersTerminals: the front makes text of what chatd-root passes on as it came. A frame
// of DEC's line drawing is what tmux answers with control characters for.
func TestFrontRendersTerminals(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "terminal"})
	must.Do(t, err)
	got, err := d.InputWait(t.Context(), c.ID, chat.Input{
		Text: `printf '10%%\r\e[31m100%%\e[m\e]0;title\a \e(0lqk\e(B\n'`, Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt},
	})
	if err != nil || got.Plain != "100% lqk" || got.Exit == nil || !strings.Contains(got.Text, "\x1b[31m100%") {
		t.Errorf("the answer is %+v, %v", got, err)
	}
	var s chat.Screen
	if !comes(func() bool {
		s, err = d.ScreenWith(t.Context(), c.ID, chat.ScreenSpec{Styles: true})
		return err != nil || strings.Contains(s.Text, "m100%")
	}) || err != nil || !strings.Contains(s.Text, "lqk") || strings.ContainsAny(s.Text, "\x0e\x0f") {
		t.Errorf("the screen is %q, %v", s.Text, err)
	}
}

// TestFrontDiesWithRoot: no front outlives the chatd-root that started it, however that ends.
func TestFrontDiesWithRoot(t *testing.T) {
	d := startDaemon(t, options(t), "")
	front := frontOf(t, d.cmd.Process.Pid)
	d.kill()
	// The process that inherits it may reap it late.
	expect.True(t, comes(func() bool { return !alive(front) }), "it lives")
}

// TestFrontKilledAtEveryStep kills the front at each step of create, wake, sleep and reap. What
// was begun is done, or undone, by chatd-root alone: asked again, it is as it should be.
func TestFrontKilledAtEveryStep(t *testing.T) {
	opt := options(t)
	orders := failpoints(filepath.Dir(opt.State))
	d := startDaemon(t, opt, string(orders))
	points := metByRoot(t, d, orders)
	ctx := t.Context()
	came := time.Now() // before this the front that is there was started
	for _, c := range []struct {
		verb string
		do   func(chat.Spec, chat.ID) error
		// there is whether the chat is there afterwards, and awake whether it has a session.
		there, awake bool
	}{
		{"create", func(s chat.Spec, _ chat.ID) error { return expect.Err(d.Create(ctx, s)) }, true, false},
		{"wake", func(_ chat.Spec, id chat.ID) error { return expect.Err(d.Wake(ctx, id)) }, true, true},
		{"sleep", func(_ chat.Spec, id chat.ID) error { return expect.Err(d.Sleep(ctx, id)) }, true, false},
		{"reap", func(_ chat.Spec, id chat.ID) error { return d.Reap(ctx, id) }, false, false},
	} {
		for _, point := range points[c.verb] {
			if slices.Contains([]string{"leftovers", "log", "tmp"}, strings.Split(point, ".")[1]) {
				continue // each point takes seconds, and to the front one step is as another
			}
			t.Run(point, func(t *testing.T) {
				spec := chat.Spec{ExternalID: point, Awake: new(false)}
				made := chat.Chat{}
				if !strings.HasPrefix(point, "create.") {
					made = must.First(d.Create(ctx, spec))(t)
				}
				if strings.HasPrefix(point, "sleep.") || strings.HasPrefix(point, "reap.") {
					must.Get(d.Wake(ctx, made.ID))(t)
				}
				front := frontOf(t, d.cmd.Process.Pid)
				time.Sleep(time.Until(came.Add(frontSettles)))
				orders.order(t, point, front)
				expect.True(t, c.do(spec, made.ID) != nil,
					"the caller is told that it is done, by a front that was killed")
				must.True(t, comes(func() bool { return frontOf(t, d.cmd.Process.Pid) != front }),
					"no other front comes")
				came = time.Now()
				if err := c.do(spec, made.ID); err != nil && (c.there || !errors.Is(err, chat.ErrNotFound)) {
					t.Errorf("asked again: %v", err)
				}
				page := must.Get(d.List(ctx, chat.Filter{ExternalID: point}))(t)
				must.True(t, c.there == (len(page.Chats) == 1), "there are %d chats", len(page.Chats))
				if !c.there {
					gone(t, opt, made)
					return
				}
				made = page.Chats[0]
				expect.True(t, made.Phase == chat.Ready && made.Awake == c.awake,
					"it is %s, awake %v", made.Phase, made.Awake)
				whole(t, opt, made)
				must.Do(t, d.Reap(ctx, made.ID))
				gone(t, opt, made)
			})
		}
	}
}

// frontSettles is a little more than the life after which chatd-root starts another front at once.
// After a shorter one it waits longer each time: five seconds in the end.
const frontSettles = 1100 * time.Millisecond

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
	needsNamespaces(t, "this daemon is in no unit with Delegate=yes: test/vagrant looks at chatd.service")
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
	program := filepath.Join(dir, greedyName)
	must.Run(t, exec.Command("cp", must.Get(os.Executable())(t), program))
	log := must.Get(os.Create(filepath.Join(dir, "chatd.log")))(t)
	defer log.Close()
	cmd := exec.Command(programs.root, "serve", "--config", configFile(t, opt), "--front", program)
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var said string
	if !comes(func() bool {
		said = string(must.Get(os.ReadFile(log.Name()))(t))
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

// TestScheduleOutlivesFront: the clock of schedules ends with the front, and the next front goes
// on with it. A run that was in progress has its result, once, and a time that comes later is
// taken. The front knows time zones though it can open no file.
func TestScheduleOutlivesFront(t *testing.T) {
	d := startDaemon(t, options(t), "")
	ctx := t.Context()
	c, _, err := d.Create(ctx, chat.Spec{ExternalID: "scheduled"})
	must.Do(t, err)
	at := func(in time.Duration, command string) chat.Schedule {
		for ; ; in *= 2 {
			when := time.Now().Add(in).UTC().Format(time.RFC3339Nano)
			s, err := d.AddSchedule(ctx, c.ID, chat.ScheduleSpec{At: when, Command: command})
			if in < longEnough && errors.Is(err, chat.ErrInvalid) {
				continue // the time was over before it was read
			}
			must.Do(t, err)
			return s
		}
	}
	noon := chat.ScheduleSpec{Cron: "0 12 1 7 *", TimeZone: "Asia/Tokyo", Command: "true"}
	zoned, err := d.AddSchedule(ctx, c.ID, noon)
	expect.True(t, err == nil && zoned.Next != nil && zoned.Next.UTC().Hour() == 3,
		"noon in Tokyo is %v, %v", zoned.Next, err)
	long := at(time.Second, "until test -e go; do sleep 0.1; done; echo went on")
	until(t, "the run begins", func() bool {
		return must.Get(d.Schedule(ctx, c.ID, long.ID))(t).RunningSince != nil
	})
	first := frontOf(t, d.cmd.Process.Pid)
	must.Do(t, unix.Kill(first, unix.SIGKILL))
	until(t, "another front comes", func() bool { return frontOf(t, d.cmd.Process.Pid) != first })
	later := at(2*time.Second, "echo later")
	must.Do(t, unix.Kill(frontOf(t, d.cmd.Process.Pid), unix.SIGKILL))
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "go"), nil, 0o666))
	for id, want := range map[string]string{long.ID: "went on\n", later.ID: "later\n"} {
		var s chat.Schedule
		until(t, "schedule "+strings.TrimSpace(want)+" has run", func() bool {
			s, err = d.Schedule(ctx, c.ID, id)
			return err == nil && s.Last != nil && s.RunningSince == nil
		})
		if s.Last.Output != want || s.Last.Exit != 0 || s.Last.Error != "" ||
			s.Runs != 1 || s.Missed != 0 || s.Next != nil {
			t.Errorf("%+v, %+v", s, s.Last)
		}
	}
}
