package roottest

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/tmux"
)

// BenchmarkLife measures what a bridge waits for, beside the rivals it is to be
// compared with, in turn in one run: machines are noisy, ratios are not. Each
// figure is the median of rounds, and the growth shows in the populations.
//
//	make bench            populations 0, 1,000 and 10,000
//
// CHATD_BENCH_CHATS and CHATD_BENCH_ROUNDS change both.
func BenchmarkLife(b *testing.B) {
	opt := options(b)
	opt.Profiles["default"] = withCommands(opt.Profiles["default"])
	m := open(b, opt)
	rivals := newRivals(b)
	rounds := envInt("CHATD_BENCH_ROUNDS", 25)
	have := 0
	for _, want := range envInts("CHATD_BENCH_CHATS", []int{0, 1000, 10000}) {
		for ; have < want; have++ {
			asleep(b, m, fmt.Sprintf("population %d", have))
		}
		b.Run(fmt.Sprintf("chats=%d", want), func(b *testing.B) { measure(b, m, rivals, rounds) })
	}
}

// withCommands gives the profile a short list: what is in the PATH does not
// change with its length, and "*" would be measured at start only.
func withCommands(p chat.Profile) chat.Profile {
	p.Commands = []string{"bash", "sh", "true", "tmux", "cat", "ls", "sleep"}
	return p
}

func measure(b *testing.B, m *manager, r *rivals, rounds int) {
	t := table{}
	ctx := operator(b.Context())
	for i := range rounds {
		name := fmt.Sprintf("%s round %d", b.Name(), i)
		t.time("useradd -m", func() { r.useradd(b) })
		r.userdel(b)
		var c chat.Chat
		t.time("create asleep", func() { c = asleep(b, m, name) })
		t.time("wake", func() { must.Get(m.Wake(ctx, c.ID))(b) })
		t.time("run of true", func() { run(b, m, c.ID, "true") })
		t.time("fork+exec of true", func() { must.Do(b, exec.Command("true").Run()) })
		t.time("sleep", func() { must.Get(m.Sleep(ctx, c.ID))(b) })
		t.time("reap", func() { must.Do(b, m.Reap(ctx, c.ID)) })
		t.time("create to prompt", func() { c = create(b, m, name+" awake", "default") })
		must.Do(b, m.Reap(ctx, c.ID))
		t.time("tmux+bash to prompt", func() { r.terminal(b) })
		r.endTerminal(b)
		t.time("bwrap with true", func() { r.bwrap(b) })
		if r.podman != "" {
			t.time("podman run of true", func() { must.Do(b, r.container()) })
		}
	}
	t.say(b, "create asleep", "useradd -m")
	t.say(b, "create to prompt", "tmux+bash to prompt", "useradd -m", "bwrap with true", "podman run of true")
	t.say(b, "wake", "tmux+bash to prompt")
	t.say(b, "run of true", "fork+exec of true")
	t.say(b, "sleep")
	t.say(b, "reap")
	memory(b, m)
}

// memory reports the proportional set size (proc_pid_smaps(5)) of an idle awake
// chat, all its processes, as the mean of eight, which share their programs as
// chats do; and of this process, which is the daemon and the benchmark.
func memory(b *testing.B, m *manager) {
	const awake = 8
	var chats []chat.Chat
	for i := range awake {
		chats = append(chats, create(b, m, fmt.Sprintf("%s idle %d", b.Name(), i), "default"))
	}
	chatPSS := 0
	for _, c := range chats {
		for _, pid := range pidsOf(c.UID) {
			chatPSS += pss(b, strconv.Itoa(pid)) / awake
		}
	}
	for _, c := range chats {
		must.Do(b, m.Reap(operator(b.Context()), c.ID))
	}
	runtime.GC()
	debug.FreeOSMemory()
	own := pss(b, "self")
	fmt.Fprintf(os.Stderr, "%-28s idle awake chat %d kB PSS, daemon %d kB PSS\n", b.Name(), chatPSS, own)
	b.ReportMetric(float64(chatPSS), "chat-kB-PSS")
	b.ReportMetric(float64(own), "daemon-kB-PSS")
}

func pss(b *testing.B, pid string) int {
	text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0 // it ended
	}
	var kB int
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	must.Get(fmt.Sscanf(rest, "%d kB", &kB))(b)
	return kB
}

func asleep(t testing.TB, m *manager, external string) chat.Chat {
	t.Helper()
	return must.First(m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Awake: new(false)}))(t)
}

// table is the samples of each thing measured.
type table map[string][]time.Duration

func (t table) time(what string, f func()) {
	began := time.Now()
	f()
	t[what] = append(t[what], time.Since(began))
}

func (t table) median(what string) float64 {
	s := slices.Clone(t[what])
	slices.Sort(s)
	return float64(s[len(s)/2].Microseconds()) / 1000
}

// say prints the median of what was measured, and how many times that of each rival it is.
func (t table) say(b *testing.B, what string, rivals ...string) {
	b.ReportMetric(0, "ns/op")
	ms := t.median(what)
	fmt.Fprintf(os.Stderr, "%-28s %-24s %8.3f ms\n", b.Name(), what, ms)
	for _, rival := range rivals {
		if len(t[rival]) == 0 {
			fmt.Fprintf(os.Stderr, "NOT MEASURED: %s is not installed, or does not run here\n", rival)
			continue
		}
		ratio := ms / t.median(rival)
		fmt.Fprintf(os.Stderr, "%-28s %-24s = %6.2f x %s (%.3f ms)\n", b.Name(), what, ratio, rival, t.median(rival))
		b.ReportMetric(ratio, strings.NewReplacer(",", "", " ", "-").Replace(what+"/"+rival))
	}
}

// rivals are the plain ways to do parts of the same: as root by hand.
type rivals struct {
	dir, home string
	uid       uint32
	podman    string // its path, if it is installed and works here
	rootfs    string
}

func newRivals(b *testing.B) *rivals {
	dir := "/srv/rivals"
	r := &rivals{dir: dir, home: filepath.Join(dir, "home"), uid: testUIDs.High + 1}
	must.Do(b, os.MkdirAll(r.home, 0o755))
	must.Do(b, os.Chown(r.home, int(r.uid), int(r.uid)))
	b.Cleanup(func() { must.Do(b, os.RemoveAll(dir)) })
	r.findPodman(b)
	return r
}

// useradd makes one user with a home, in the copies of /etc's files that this
// mount namespace has.
func (r *rivals) useradd(b *testing.B) {
	must.Run(b, exec.Command("useradd", "-m", "-d", "/srv/rivals/added", "-u", fmt.Sprint(r.uid+1), "-K", "UID_MAX=2147483646", "rival"))
}

func (r *rivals) userdel(b *testing.B) {
	must.Run(b, exec.Command("userdel", "-r", "rival"))
}

// terminal starts tmux with the same shell, as a bare uid, and returns when the
// prompt's byte came.
func (r *rivals) terminal(b *testing.B) {
	fifo := filepath.Join(r.home, "prompt")
	if err := unix.Mkfifo(fifo, 0o600); err != nil && err != unix.EEXIST {
		b.Fatal(err)
	}
	must.Do(b, os.Chown(fifo, int(r.uid), int(r.uid)))
	f := must.Get(os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0))(b)
	defer f.Close()
	rc, conf := filepath.Join(r.home, "bashrc"), filepath.Join(r.home, "tmux.conf")
	must.Do(b, os.WriteFile(rc, []byte(strings.ReplaceAll(plan.Bashrc, plan.InsidePrompt, fifo)), 0o644))
	shell := []string{"/bin/bash", "--noprofile", "--rcfile", rc, "-i"}
	must.Do(b, os.WriteFile(conf, tmux.Config(shell, ""), 0o644))
	argv := tmux.StartArgv(filepath.Join(r.home, "sock"), conf, shell)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = r.home
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + r.home, "TERM=screen", "SHELL=/bin/bash", "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	must.Do(b, cmd.Start())
	must.Do(b, f.SetReadDeadline(time.Now().Add(20*time.Second)))
	must.Get(f.Read(make([]byte, 1)))(b)
	must.Do(b, cmd.Wait())
}

func (r *rivals) endTerminal(b *testing.B) {
	must.Do(b, exec.Command("tmux", "-S", filepath.Join(r.home, "sock"), "kill-server").Run())
}

// bwrap is the session's bubblewrap line with true in it.
func (r *rivals) bwrap(b *testing.B) {
	v := plan.View{User: "rival", UID: r.uid, Home: r.home, Tmp: r.home, VarTmp: r.home, Network: chat.NetworkNone,
		Shim: "/usr/bin/true", ShimDir: "/usr/bin", BinDir: "/usr/bin"}
	args, files := v.Args(3)
	cmd := exec.Command("bwrap")
	for _, f := range files {
		fd := must.Get(unix.MemfdCreate("f", unix.MFD_CLOEXEC))(b)
		file := os.NewFile(uintptr(fd), "f")
		defer file.Close()
		must.Get(file.Write(f.Content))(b)
		must.Get(file.Seek(0, 0))(b)
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.Args = append(append(cmd.Args, args...), "--", "/usr/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	must.Run(b, cmd)
}

// container runs true in a container over the host's own files: no image to
// unpack, no network to set up.
func (r *rivals) container() error {
	out, err := exec.Command(r.podman, "--root", r.dir+"/podman", "--runroot", r.dir+"/podman-run", "--cgroup-manager", "cgroupfs",
		"run", "--rm", "--network", "none", "--cgroups", "disabled", "--ulimit", "host", "--rootfs", r.rootfs, "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// findPodman makes sure that podman is there and works here, over a root of the
// host's own programs.
func (r *rivals) findPodman(b *testing.B) {
	r.podman, _ = exec.LookPath("podman")
	if r.podman == "" {
		return
	}
	r.rootfs = r.dir + "/rootfs"
	for _, d := range []string{"usr", "proc", "sys", "dev", "etc", "run", "tmp"} {
		must.Do(b, os.MkdirAll(filepath.Join(r.rootfs, d), 0o755))
	}
	for _, l := range []string{"bin", "lib", "lib64"} {
		must.Do(b, os.Symlink("usr/"+l, filepath.Join(r.rootfs, l)))
	}
	must.Do(b, unix.Mount("/usr", r.rootfs+"/usr", "", unix.MS_BIND, ""))
	b.Cleanup(func() {
		must.Do(b, unix.Unmount(r.rootfs+"/usr", unix.MNT_DETACH))
		_ = unix.Unmount(r.dir+"/podman/overlay", unix.MNT_DETACH)
	})
	if err := r.container(); err != nil {
		fmt.Fprintf(os.Stderr, "podman does not run here: %v\n", err)
		r.podman = ""
	}
}

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

func envInts(name string, otherwise []int) []int {
	var got []int
	for _, f := range strings.Fields(strings.ReplaceAll(os.Getenv(name), ",", " ")) {
		if n, err := strconv.Atoi(f); err == nil {
			got = append(got, n)
		}
	}
	if got == nil {
		return otherwise
	}
	return got
}

// BenchmarkPopulation makes 10,000 chats, of which it wakes 500, and prints what one of each kind
// costs, and which of the host's bounds this many come closest to. CHATD_BENCH_POPULATION is
// "asleep,awake".
func BenchmarkPopulation(b *testing.B) {
	many := envInts("CHATD_BENCH_POPULATION", []int{10000, 500})
	opt := options(b)
	opt.Profiles["default"] = withCommands(opt.Profiles["default"])
	m := open(b, opt)
	must.Do(b, m.Reap(operator(b.Context()), create(b, m, "the first", "default").ID))
	p := &population{b: b, opt: opt, m: m}
	empty := p.count()
	for i := range many[0] {
		p.chats = append(p.chats, asleep(b, m, fmt.Sprint("many ", i)))
	}
	sleeping := p.count()
	p.say("a chat asleep", sleeping, empty, many[0])
	p.wake(many[1])
	awake := p.count()
	p.say("an awake chat more", awake, sleeping, many[1])
	p.bounds()
	p.reap()
	b.ReportMetric(0, "ns/op")
}

// population drives one daemon, which is this process.
type population struct {
	b     *testing.B
	opt   provision.Options
	m     *manager
	chats []chat.Chat
}

// populated is what the host has, by name; sizes are in KiB.
type populated map[string]uint64

// wake wakes the first chats, four simultaneously.
func (p *population) wake(n int) {
	next := make(chan chat.ID)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for id := range next {
				if _, err := p.m.Wake(operator(p.b.Context()), id); err != nil {
					p.b.Error(err)
				}
			}
		})
	}
	for _, c := range p.chats[:n] {
		next <- c.ID
	}
	close(next)
	wg.Wait()
}

// reap removes all chats.
func (p *population) reap() {
	atOnce(p.chats, func(c chat.Chat) {
		if err := p.m.Reap(operator(p.b.Context()), c.ID); err != nil {
			p.b.Error(err)
		}
	})
}

// count looks at the host as a whole: the machine has nothing else to do.
func (p *population) count() populated {
	c := populated{}
	for _, line := range []string{"SUnreclaim", "KernelStack", "PageTables", "Percpu"} {
		c[line] = kilobytes("/proc/meminfo", line)
	}
	h := independent{opt: p.opt, processes: map[uint32][]int{}, cgroups: map[chat.ID][]string{}}
	h.readProcesses(p.b)
	h.readCgroups(p.b)
	for _, pids := range h.processes {
		c["processes"] += uint64(len(pids))
		for _, pid := range pids {
			c["PSS of its processes"] += kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		}
	}
	for _, dirs := range h.cgroups {
		c["cgroup directories"] += uint64(len(dirs))
	}
	for _, dir := range []string{p.opt.Homes, p.opt.State, p.opt.Run, p.opt.Userdb} {
		p.disk(c, dir)
	}
	fds := must.Get(os.ReadDir("/proc/self/fd"))(p.b)
	c["descriptors of chatd"] = uint64(len(fds))
	c["PSS of chatd"] = kilobytes("/proc/self/smaps_rollup", "Pss")
	for _, pid := range egressesOf(p.opt) {
		c["PSS of chatd-egress"] += kilobytes("/proc/"+pid+"/smaps_rollup", "Pss")
	}
	return c
}

// disk adds the inodes and KiB of a tree.
func (p *population) disk(c populated, dir string) {
	must.Do(p.b, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(name, &st) == nil {
			c["inodes"]++
			c["disk"] += uint64(st.Blocks) / 2
		}
		return ignoreGone(err)
	}))
}

// say prints what one of n costs.
func (p *population) say(what string, now, before populated, n int) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		each := (float64(now[name]) - float64(before[name])) / float64(n)
		if each >= 0.01 || each <= -0.01 {
			fmt.Fprintf(os.Stderr, "%-20s %10.2f %s\n", what, each, name)
		}
	}
}

// bound is a resource of the host, and how much of it is in use.
type bound struct {
	name     string
	used, of float64
}

// bounds prints what of the host's is in use, the fullest first.
func (p *population) bounds() {
	c := p.count()
	var fs unix.Statfs_t
	must.Do(p.b, unix.Statfs(p.opt.Homes, &fs))
	var files unix.Rlimit
	must.Do(p.b, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	free, all := kilobytes("/proc/meminfo", "MemAvailable"), kilobytes("/proc/meminfo", "MemTotal")
	ptys := must.Get(os.ReadDir("/dev/pts"))(p.b)
	open := strings.Fields(text("/proc/sys/fs/file-nr"))
	bounds := []bound{
		{"memory", float64(all - free), float64(all)},
		{"blocks of the homes' file system", float64(fs.Blocks - fs.Bfree), float64(fs.Blocks)},
		{"inodes of the homes' file system", float64(fs.Files - fs.Ffree), float64(fs.Files)},
		{"descriptors of chatd", float64(c["descriptors of chatd"]), float64(files.Cur)},
		{"processes (kernel.pid_max)", float64(len(glob("/proc/[0-9]*"))),
			figure("/proc/sys/kernel/pid_max")},
		{"terminals of the host (kernel.pty.max)", float64(len(ptys) - 1),
			figure("/proc/sys/kernel/pty/max")},
		{"open files (fs.file-max)", parse(open[0]), parse(open[2])},
		{"uids of the range", float64(len(p.chats)), float64(p.opt.UIDs.High - p.opt.UIDs.Low)},
	}
	slices.SortFunc(bounds, func(x, y bound) int { return cmp.Compare(y.used/y.of, x.used/x.of) })
	for _, x := range bounds {
		fmt.Fprintf(os.Stderr, "%6.2f %% of %s: %.0f of %.0f\n",
			100*x.used/x.of, x.name, x.used, x.of)
	}
}

func glob(pattern string) []string { all, _ := filepath.Glob(pattern); return all }

func text(file string) string { b, _ := os.ReadFile(file); return string(b) }

func figure(file string) float64 { return parse(strings.TrimSpace(text(file))) }

func parse(s string) float64 { n, _ := strconv.ParseFloat(s, 64); return n }

// BenchmarkStart measures a start of the daemon until every wall was tried. The first of a state
// directory also makes the directories and the PATH, and is not counted. To compare two commits,
// build the tests of both with go test -c and let them take turns.
func BenchmarkStart(b *testing.B) {
	opt := options(b)
	t := table{}
	for round := range envInt("CHATD_BENCH_ROUNDS", 25) + 1 {
		var m *manager
		what := "start"
		if round == 0 {
			what = "first start"
		}
		t.time(what, func() { m = must.Get(openManager(b.Context(), opt))(b) })
		must.Do(b, m.Close())
	}
	t.say(b, "first start")
	t.say(b, "start")
	b.ReportMetric(t.median("start"), "ms/start")
}

// BenchmarkThaw measures the first input to a chat that is awake, frozen or asleep, in turn in one
// run, and what the thaw and the wake alone take.
func BenchmarkThaw(b *testing.B) {
	m := open(b, options(b))
	ctx := operator(b.Context())
	c := create(b, m, "bench", "default")
	t := table{}
	freeze := func() { must.Get(m.Freeze(asBridge(b.Context(), "root"), c.ID))(b) }
	sleep := func() { must.Get(m.Sleep(ctx, c.ID))(b) }
	input := func() { must.Do(b, m.Input(ctx, c.ID, chat.Input{Text: "true", Enter: true})) }
	for range envInt("CHATD_BENCH_ROUNDS", 25) {
		t.time("input, awake", input)
		freeze()
		t.time("input, frozen", input)
		sleep()
		t.time("input, asleep", input)
		t.time("freeze", freeze)
		t.time("thaw", func() { must.Get(m.Thaw(ctx, c.ID))(b) })
		sleep()
		t.time("wake", func() { must.Get(m.Wake(ctx, c.ID))(b) })
	}
	for _, what := range []string{"input, awake", "input, frozen", "input, asleep", "freeze"} {
		t.say(b, what)
	}
	t.say(b, "thaw", "wake")
}
