package roottest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
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
	needsRoot(b)
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
	t.report(b)
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

func second[T any](_ T, err error) error { return err }

func asleep(t testing.TB, m *manager, external string) chat.Chat {
	t.Helper()
	no := false
	c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Awake: &no})
	must.Do(t, err)
	return c
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

// report prints medians in ms, and the ratios that the project promises.
func (t table) report(b *testing.B) {
	for _, p := range [][2]string{
		{"create asleep", "useradd -m"}, {"create to prompt", "tmux+bash to prompt"},
		{"create to prompt", "useradd -m"}, {"create to prompt", "bwrap with true"},
		{"create to prompt", "podman run of true"}, {"wake", "tmux+bash to prompt"},
		{"run of true", "fork+exec of true"},
		{"sleep", ""}, {"reap", ""},
	} {
		if p[1] != "" && len(t[p[1]]) == 0 {
			fmt.Fprintf(os.Stderr, "%-28s %s was not measured: it is not installed, or does not run here\n", b.Name(), p[1])
			continue
		}
		ms := t.median(p[0])
		if p[1] == "" {
			fmt.Fprintf(os.Stderr, "%-28s %-18s %8.2f ms\n", b.Name(), p[0], ms)
			continue
		}
		ratio := ms / t.median(p[1])
		fmt.Fprintf(os.Stderr, "%-28s %-18s %8.2f ms = %5.2f x %s (%.2f ms)\n", b.Name(), p[0], ms, ratio, p[1], t.median(p[1]))
		b.ReportMetric(ratio, strings.ReplaceAll(p[0]+"/"+p[1], " ", "-"))
	}
	b.ReportMetric(0, "ns/op")
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
	out, err := exec.Command("useradd", "-m", "-d", "/srv/rivals/added", "-u", fmt.Sprint(r.uid+1), "-K", "UID_MAX=2147483646", "rival").CombinedOutput()
	must.True(b, err == nil, "useradd: %v: %s", err, out)
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
