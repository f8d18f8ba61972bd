package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// unmountIn takes a mount away in the mount namespace of a process.
func unmountIn(pid, place string) error {
	ns, err := os.Open("/proc/" + pid + "/ns/mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with it
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread() // the first thread would not end: another one, while this is held
			done <- unmountIn(pid, place)
			return
		}
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = unix.Unmount(place, unix.MNT_DETACH)
		}
		if err != nil {
			err = fmt.Errorf("cannot unmount %s: %w", place, err)
		}
		done <- err
	}()
	return <-done
}

// TestRulesWithoutEnforcer: what file rules close outside the home stays closed in a session whose
// enforcer is stopped and whose mounts are gone: Landlock grants nothing there. Without Landlock it
// is read. A session starts even if rules close a whole exposure, and explain and layers report
// which wall enforces what.
func TestRulesWithoutEnforcer(t *testing.T) {
	needsRoot(t)
	for name, without := range map[string][]chat.LayerName{"Landlock": nil, "no Landlock": {chat.LayerLandlock}} {
		t.Run(name, func(t *testing.T) {
			shared := filepath.Join("/srv", fmt.Sprintf("denied-%d-%d", os.Getpid(), worlds.Load()))
			whole := shared + "-whole" // not below it: a grant is for a directory, whatever it is called
			t.Cleanup(func() { os.RemoveAll(shared); os.RemoveAll(whole) })
			for _, f := range []string{"secret/f", "open/f", "../" + filepath.Base(whole) + "/f"} {
				must.Do(t, os.MkdirAll(filepath.Join(shared, filepath.Dir(f)), 0o755))
				must.Do(t, os.WriteFile(filepath.Join(shared, f), []byte(secret), 0o644))
			}
			opt := ruledOptions(t, `access: {useDefaults: false, deny: [/data/secret, /whole, "~/keys"]}`)
			opt.Without = append(opt.Without, without...)
			opt.AllowMissing = append(append(opt.AllowMissing, without...), chat.LayerNetwork)
			p := opt.Profiles["ruled"]
			p.ExposePaths = []chat.Expose{{Source: shared, Target: "/data", Mode: chat.ReadOnly}, {Source: whole, Target: "/whole", Mode: chat.ReadOnly}}
			opt.Profiles["ruled"] = p
			m := must.Get(openManager(t.Context(), opt))(t)
			c := sleeper(t, m, "left-out")
			must.Do(t, errors.Join(os.Mkdir(c.Home+"/keys", 0o755), os.WriteFile(c.Home+"/keys/k", []byte(secret), 0o644)))
			c = wake(t, m, c.ID)
			denied := []string{"/data/secret/f", "/whole/f"}
			for _, f := range denied {
				refused(t, m, c, "cat %s", f)
			}
			if got := tells(t, m, c, "ls /data; cat /data/open/f"); !strings.Contains(got, "secret\n") || !strings.HasSuffix(got, secret) {
				t.Errorf("beside: %q", got)
			}
			e, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Op: "read", Path: denied[0]})
			if err != nil || slices.Contains(e.KeptBy, "landlock") != (without == nil) || !slices.Contains(e.KeptBy, "chatd-enforce") {
				t.Errorf("explain: kept by %q, %v", e.KeptBy, err)
			}
			if e, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Op: "read", Path: "~/keys/k"}); err != nil || !slices.Equal(e.KeptBy, []string{"chatd-enforce"}) {
				t.Errorf("explain in the home: kept by %q, %v", e.KeptBy, err)
			}
			got := must.Get(m.Get(operator(t.Context()), c.ID))(t)
			shown := slices.ContainsFunc(got.Layers, func(l chat.Layer) bool {
				return l.Name == chat.LayerLandlock && strings.Contains(l.Probe, "at 2 denied paths")
			})
			expect.Equal(t, shown, (without == nil), "layers tell of it")
			goOn := waitingRun(t, m, c, "cat /data/secret/f /whole/f")
			initPID := sessionInit(t, c)
			must.Do(t, m.Close()) // it would bring the enforcer back
			enforcers := enforcersOf(opt)
			endEnforcer(t, opt)
			for _, pid := range enforcers {
				awaitClosed(t, pid)
			}
			for _, place := range []string{"/data/secret", "/whole"} {
				must.Do(t, unmountIn(initPID, place))
			}
			want := 0
			if without != nil {
				want = len(denied)
			}
			if out := goOn(); strings.Count(out, secret) != want {
				t.Errorf("with nobody but %s the chat read %q", name, out)
			}
			open(t, opt) // which reaps it
		})
	}
}

// awaitClosed waits until a killed process has closed its files: an open about which a group of
// fanotify(7) is asked while its last descriptor closes may wait for ever (seen on Linux 6.18).
func awaitClosed(t *testing.T, pid string) {
	t.Helper()
	until(t, "process "+pid+" closes its files", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		tasks, _ := os.ReadDir("/proc/" + pid + "/task")
		return err != nil || len(tasks) == 1 && strings.Contains(string(stat), ") Z ")
	})
}

// waitingRun starts a background run, which does the command when it is told to. What it returns
// tells it, and returns what the command printed.
func waitingRun(t *testing.T, m *manager, c chat.Chat, command string) (goOn func() string) {
	t.Helper()
	fifo, out := filepath.Join(c.Home, "go"), filepath.Join(c.Home, "out")
	putFile(t, c, "out", "")
	putFile(t, c, "waits.sh", "read x <go; "+command+" >>out 2>&1; echo over >>out")
	must.Do(t, errors.Join(unix.Mkfifo(fifo, 0o600), os.Chown(fifo, int(c.UID), int(c.UID))))
	startRun(t, m, c.ID, chat.RunSpec{Command: "sh waits.sh"})
	pipe, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the run has opened it
	must.Do(t, err)
	return func() (printed string) {
		t.Helper()
		must.Do(t, errors.Join(second(pipe.WriteString("\n")), pipe.Close()))
		until(t, "the run has tried", func() bool {
			b := must.Get(os.ReadFile(out))(t)
			printed = string(b)
			return strings.HasSuffix(printed, "over\n")
		})
		return printed
	}
}

// TestRulesMaskedByBubblewrap: what file rules close in a tree that no session can write to, and is
// there when a session begins, is masked by bubblewrap: the plan has the masks, explain and layers tell of them, and a reload opens what
// lies under one and closes it again, after which the enforcer alone keeps it. A link gets no mask.
func TestRulesMaskedByBubblewrap(t *testing.T) {
	needsRoot(t)
	const deny = `access: {useDefaults: false, deny: [/data/keys, /data/note, /data/link, /data/later]}`
	opt := ruledOptions(t, deny)
	// Landlock would keep closed what a reload opens.
	opt.Without = append(opt.Without, chat.LayerLandlock)
	opt.AllowMissing = append(opt.AllowMissing, chat.LayerLandlock, chat.LayerNetwork)
	data := filepath.Join("/srv", fmt.Sprintf("masked-%d-%d", os.Getpid(), worlds.Load()))
	t.Cleanup(func() { os.RemoveAll(data) })
	p := opt.Profiles["ruled"]
	p.ExposePaths = []chat.Expose{{Source: data, Target: "/data", Mode: chat.ReadOnly}}
	opt.Profiles["ruled"] = p
	must.Do(t, errors.Join(os.MkdirAll(data+"/keys", 0o755), os.WriteFile(data+"/keys/k", []byte(secret), 0o644),
		os.WriteFile(data+"/note", []byte(secret), 0o644), os.Symlink("other", data+"/link")))
	m := must.Get(openManager(t.Context(), opt))(t)
	defer endEnforcer(t, opt)
	c := sleeper(t, m, "masks")
	c = wake(t, m, c.ID)
	ctx := operator(t.Context())
	masks := func() (all []string) {
		plan := must.Get(m.Plan(ctx, c.ID))(t)
		for _, mount := range plan.Mounts {
			if mount.By == "file rules" {
				all = append(all, strings.TrimPrefix(mount.Target, "/data"))
			}
		}
		return all
	}
	if got := masks(); !slices.Equal(got, []string{"/keys", "/note"}) {
		t.Errorf("the plan masks %q", got)
	}
	keptBy := func(want ...string) {
		t.Helper()
		e, err := m.Explain(ctx, c.ID, chat.Question{Op: "read", Path: "/data/keys/k"})
		expect.True(t, err == nil && slices.Equal(e.KeptBy, want),
			"kept by %q, %v, want %q", e.KeptBy, err, want)
	}
	tellsOf := func(n int) {
		t.Helper()
		got := must.Get(m.Get(ctx, c.ID))(t)
		if !slices.ContainsFunc(got.Layers, func(l chat.Layer) bool {
			return l.Name == chat.LayerView && strings.Contains(l.Probe, fmt.Sprintf("masks %d denied paths", n))
		}) {
			t.Errorf("layers do not tell of %d masks: %+v", n, got.Layers)
		}
	}
	refused(t, m, c, "cat /data/keys/k")
	refused(t, m, c, "cat /data/note")
	keptBy("chatd-enforce", "bubblewrap")
	tellsOf(2)
	reload := func(rules string) {
		t.Helper()
		must.Do(t, m.Reload(ctx, map[string]*filerules.Policy{"ruled": policy(t, rules)}))
	}
	reload(`access: {useDefaults: false, deny: [/data/note]}`)
	expect.Equal(t, tells(t, m, c, "cat /data/keys/k"), secret, "what a reload opened says")
	refused(t, m, c, "cat /data/note")
	tellsOf(1)
	reload(deny)
	refused(t, m, c, "cat /data/keys/k")
	keptBy("chatd-enforce")
	must.Do(t, m.Close())
	m = open(t, opt)
	refused(t, m, c, "cat /data/note")
	tellsOf(1)
	must.Get(m.Sleep(ctx, c.ID))(t)
	keptBy("chatd-enforce", "bubblewrap")
	if got := masks(); !slices.Equal(got, []string{"/keys", "/note"}) {
		t.Errorf("the next plan masks %q", got)
	}
}
