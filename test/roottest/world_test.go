package roottest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/landlock"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// testUIDs lie above chatd's default range and depend on the process that started this
// one and on which of its workers this is, so that a production chatd on this machine,
// and two runs of the tests, never meet: chatd ends every process of a uid that it reaps.
var testUIDs = func() state.Range {
	if onHost() {
		return hostUIDs
	}
	worker, _ := strconv.Atoi(os.Getenv(workerEnv)) // 0 without workers
	slot := uint32((os.Getppid()*maxWorkers + worker) % 1000)
	low := 2013265920 + slot*131072
	return state.Range{Low: low, High: low + 131071}
}()

// peerV4 and peerV6 are addresses that only a test's own peer namespace has.
var peerV4 = netip.MustParseAddr("10.213.0.2")

var worlds atomic.Uint64

// options is a host directory of its own for one daemon.
func options(t testing.TB) provision.Options {
	t.Helper()
	// No other process of tests has one of that name: pgrep sees them all.
	dir := fmt.Sprintf("/srv/w%d-%d", os.Getpid(), worlds.Add(1))
	name := fmt.Sprintf("chatd-test-%d-%d", os.Getpid(), worlds.Load())
	t.Cleanup(func() { removeCgroups(t, name); dropAccounts(t); _ = os.RemoveAll(dir) })
	if onHost() {
		mountState(t, filepath.Join(dir, "state"))
	} else {
		// The links of the profiles' PATHs are in memory. There are thousands, which are gone with each
		// test, and ext4 gives the inode of a deleted file out again only seconds later: it looks at all
		// of them for each link that it makes (recently_deleted, fs/ext4/ialloc.c).
		must.Do(t, os.MkdirAll(filepath.Join(dir, "state"), 0o711))
		mount(t, "tmpfs", filepath.Join(dir, "state", "profiles"), "mode=755")
	}
	opt := provision.Options{
		State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"), Homes: filepath.Join(dir, "homes"),
		Backend: backend(), Cgroup: name,
		Userdb: "/etc/userdb", Shim: programs.shim, Enforce: programs.enforce, Egress: programs.egress, EgressUID: 60999, EgressGID: 60999, UIDs: testUIDs, LandlockABI: 2,
		Profiles: profiles(), Version: "test", Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: logLevel()})),
	}
	t.Cleanup(func() { endEnforcer(t, opt) }) // of any test with rules
	t.Cleanup(func() { endEgress(t, opt) })
	return opt
}

// dropAccounts removes the records that a test left of its uids: the next daemon, which begins
// with the same uids, would refuse to start beside them.
func dropAccounts(t testing.TB) {
	if onHost() {
		return
	}
	for _, e := range must.Get(os.ReadDir("/etc/userdb"))(t) {
		must.Do(t, os.Remove(filepath.Join("/etc/userdb", e.Name())))
	}
}

// removeCgroups removes the base cgroups of one daemon, which have no namespace
// to end with. A front or a chatd-egress that was killed may take a moment to end.
func removeCgroups(t testing.TB, name string) {
	if onHost() {
		removeUnits(t, name)
		return
	}
	var err error
	for _, dir := range slices.Backward(cgroups("/" + name)) {
		var left error
		comes(func() bool {
			left = os.Remove(dir)
			apart := strings.HasSuffix(dir, ".front") || strings.HasSuffix(dir, ".egress")
			return !errors.Is(left, unix.EBUSY) || !apart
		})
		err = errors.Join(err, left)
	}
	expect.True(t, err == nil, "cannot remove the test's cgroups: %v", err)
}

// cgroups are the directories of cgroups whose paths contain all the words.
func cgroups(words ...string) (dirs []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(path, w) }) {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// configFile writes what a real daemon with these options reads.
func configFile(t testing.TB, opt provision.Options, more ...string) string {
	t.Helper()
	file := filepath.Join(filepath.Dir(opt.State), "chatd.yaml")
	text := fmt.Sprintf("state: %s\nrun: %s\nhomes: %s\nshim: %s\nuids: %s\ncgroup: %s\nbackend: %s\n",
		opt.State, opt.Run, opt.Homes, opt.Shim, opt.UIDs, opt.Cgroup, opt.Backend)
	writeFile(t, file, text+strings.Join(more, ""), 0o600)
	return file
}

// writeFile makes a file, and the directories to it.
func writeFile(t testing.TB, file, text string, mode fs.FileMode) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte(text), mode))
}

// mount mounts a file system of that kind over a directory, which it makes, or another directory
// where it is a path, until the test ends.
func mount(t testing.TB, kind, dir, data string) {
	t.Helper()
	must.Do(t, os.MkdirAll(dir, 0o755))
	flags := uintptr(0)
	if filepath.IsAbs(kind) {
		flags = unix.MS_BIND
	}
	must.Do(t, unix.Mount(kind, dir, kind, flags, data))
	t.Cleanup(func() { must.Do(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// privateTrees are the directories that the chat sees as /tmp and /var/tmp.
func privateTrees(opt provision.Options, c chat.Chat) (tmp, varTmp string) {
	return filepath.Join(opt.State, "tmp", c.User), filepath.Join(opt.State, "vartmp", c.User)
}

func profiles() map[string]chat.Profile {
	commands := []string{"*"}
	allow, err := chat.ParseAllow(peerV4.String() + ":8000")
	if err != nil {
		panic(err)
	}
	return map[string]chat.Profile{
		"default": {Name: "default", Limits: chat.DefaultLimits(), Commands: commands},
		"web":     {Name: "web", Limits: chat.DefaultLimits(), Commands: commands, Egress: []chat.Allow{allow}},
	}
}

// logLevel is warn, or what CHATD_TEST_LOG says: debug shows what each step took.
func logLevel() slog.Level {
	level := slog.LevelWarn
	if s := os.Getenv("CHATD_TEST_LOG"); s != "" {
		_ = level.UnmarshalText([]byte(s))
	}
	return level
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// open starts a Manager that is closed, with its chats reaped, at the end.
func open(t testing.TB, opt provision.Options) *manager {
	t.Helper()
	m := must.Get(openManager(t.Context(), opt))(t)
	t.Cleanup(func() {
		ctx := operator(context.Background())
		page, err := m.List(ctx, chat.Filter{Limit: 1000})
		expect.NoError(t, err)
		for _, c := range page.Chats {
			expect.NoError(t, m.Reap(ctx, c.ID))
		}
		expect.NoError(t, m.Close())
	})
	return m
}

// restart ends chatd-root, and starts another.
func (m *manager) restart(t testing.TB, opt provision.Options) {
	t.Helper()
	must.Do(t, m.Close())
	*m = *must.Get(openManager(t.Context(), opt))(t)
}

func operator(ctx context.Context) context.Context {
	return chat.WithCaller(ctx, chat.Caller{Name: "root", Role: chat.RoleOperator})
}

// create makes a chat of the given profile, awake.
func create(t testing.TB, m *manager, external, profile string) chat.Chat {
	t.Helper()
	var c chat.Chat
	var err error
	comes(func() bool { // a host that starves cannot try a layer in time: "busy", wait until it can
		c, _, err = m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Profile: profile})
		return !errors.Is(err, chat.ErrBusy)
	})
	must.Do(t, err)
	return c
}

// promised is how a layer must stand on this kernel, where nothing is left out:
// on, or weaker by exactly what its Landlock lacks. CHATD_TEST_LANDLOCK_ABI is the least that the
// machine is known to have.
func promised(t testing.TB, l chat.LayerName) chat.LayerState {
	t.Helper()
	abi := landlock.ABI()
	if known, err := strconv.Atoi(os.Getenv("CHATD_TEST_LANDLOCK_ABI")); err == nil && abi < known {
		t.Errorf("the kernel has Landlock ABI %d, CHATD_TEST_LANDLOCK_ABI is %d", abi, known)
	}
	if l == chat.LayerLandlock && abi < 2 {
		return chat.LayerWeaker
	}
	if l == chat.LayerDisk && !enforcesQuotas() {
		return chat.LayerWeaker
	}
	return chat.LayerOn
}

// run runs a shell command in the chat.
func run(t testing.TB, m *manager, id chat.ID, command string) chat.RunResult {
	t.Helper()
	r, err := m.Run(operator(t.Context()), id, chat.RunSpec{Command: command})
	must.True(t, err == nil, "run %q: %v", command, err)
	return r
}

// manager is a provision.Manager with the front's reading of runs and its speaking with file tools
// above it, and without the front's check of commands. Its Manager alone is chatd-root.
type manager struct {
	below
	*runs.Streams
	*runs.Tools
}

// below has its methods hidden by those of Streams and Tools.
type below struct{ *provision.Manager }

// openManager is startManager whose walls are tried.
func openManager(ctx context.Context, opt provision.Options) (*manager, error) {
	m, err := provision.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	if err := m.ProbeAndReconcile(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return above(m, nil)
}

// startManager is provision.Start.
func startManager(ctx context.Context, opt provision.Options) (*manager, error) {
	return above(provision.Start(ctx, opt))
}

func above(m *provision.Manager, err error) (*manager, error) {
	if err != nil {
		return nil, err
	}
	return &manager{below{m}, runs.NewStreams(m), runs.NewTools(m)}, nil
}

// longEnough bounds every wait for something that must come: no test fails because a machine
// is slow, and one that waits for what never comes says what that is.
const longEnough = 8 * time.Minute

// until waits for ok, and fails the test with what it waited for where that never comes.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	must.True(t, comes(ok), "%s: not within %s", what, longEnough)
}

// comes reports whether ok is true before longEnough is over.
func comes(ok func() bool) bool {
	for end := time.Now().Add(longEnough); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// going does f meanwhile. What it returns comes by the channel, which is closed then.
func going[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f(); close(done) }()
	return done
}

// exists is for until and comes.
func exists(path string) func() bool {
	return func() bool { _, err := os.Lstat(path); return err == nil }
}

// runTag is in the environment of a run that a test looks for, and of all that it starts.
const runTag = "CHATD_TEST_RUN"

// tagged are the processes of a uid that a run with that tag started. Counting them does not depend
// on the session's own processes, or on when they have all started.
func tagged(uid uint32, tag string) (found []int) {
	for _, pid := range pidsOf(uid) {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+runTag+"="+tag+"\x00") {
			found = append(found, pid)
		}
	}
	return found
}

// inRuns are the processes of a uid, the dead among them, that are in the leaf of a run, as the
// kernel says.
func inRuns(uid uint32) (found []int) {
	for _, pid := range pidsOf(uid) {
		groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
		if err == nil && strings.Contains(string(groups), "/runs/") {
			found = append(found, pid)
		}
	}
	return found
}

// prints runs a shell command in the chat, and expects what it prints.
func prints(t testing.TB, m *manager, id chat.ID, command, want string) {
	t.Helper()
	r := run(t, m, id, command)
	expect.True(t, r.Stdout == want, "%q: %+v, want %q", command, r, want)
}

// edit changes the profile of that name. Where there is none it makes one of the default's.
func edit(opt provision.Options, name string, change func(*chat.Profile)) {
	p, ok := opt.Profiles[name]
	if !ok {
		p = opt.Profiles["default"]
		p.Name = name
	}
	change(&p)
	opt.Profiles[name] = p
}

// expose has chats of a profile see a path of the host, read-only.
func expose(opt provision.Options, profile, source, target string) {
	edit(opt, profile, func(p *chat.Profile) {
		p.ExposePaths = append(p.ExposePaths, chat.Expose{Source: source, Target: target, Mode: chat.ReadOnly})
	})
}

// needsNamespaces skips a test that cannot be on a machine whose namespaces are the host's.
func needsNamespaces(t testing.TB, why string) {
	t.Helper()
	if onHost() {
		t.Skip(why)
	}
}
