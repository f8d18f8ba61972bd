package roottest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkRuns is a run of true, beside fork and exec of true, nsenter of it into the namespaces
// of a session, and crun exec of it in a container, in turn in one run: read the ratios.
//
//	go test ./test/roottest -run - -bench BenchmarkRuns -benchtime 1x
func BenchmarkRuns(b *testing.B) {
	opt := attackOptions(b) // else the last ones measure the quota
	m := open(b, opt)
	d := serveOver(b, m, opt)
	c := create(b, m, "bench", "default")
	initPID := sessionInit(b, c)
	rounds := envInt("CHATD_BENCH_ROUNDS", 25)
	crun, err := newCrun(b)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: crun is not measured: %v\n", b.Name(), err)
	}
	ctx := operator(b.Context())
	t := table{}
	for range rounds {
		t.time("fork and exec", func() { must.Do(b, exec.Command("/bin/true").Run()) })
		t.time("nsenter", func() {
			must.Do(b, exec.Command("nsenter", "-t", initPID, "-m", "-p", "-i", "-u", "/bin/true").Run())
		})
		if crun != nil {
			t.time("crun exec", func() { must.Do(b, crun.exec()) })
		}
		t.time("run", func() { must.Get(m.Run(ctx, c.ID, chat.RunSpec{Argv: []string{"/usr/bin/true"}}))(b) })
		t.time("run over HTTP", func() { must.Get(d.Run(b.Context(), c.ID, chat.RunSpec{Argv: []string{"/usr/bin/true"}}))(b) })
		t.time("background, to its end", func() {
			r := startRun(b, m, c.ID, chat.RunSpec{Argv: []string{"/usr/bin/true"}})
			must.Get(m.FollowRun(ctx, c.ID, r.ID, "", func(chat.Frame) {}))(b)
		})
	}
	for _, what := range []string{"run", "run over HTTP", "background, to its end"} {
		t.say(b, what, "fork and exec", "nsenter", "crun exec")
	}
}

// sessionInit is the pid of bubblewrap's pid 1 in the chat's session.
func sessionInit(t testing.TB, c chat.Chat) string {
	t.Helper()
	for _, pid := range pidsOf(c.UID) {
		if pids, _ := statusField(pid, "NSpid"); strings.HasSuffix(pids, " 1") {
			return fmt.Sprint(pid)
		}
	}
	t.Fatal("the session has no pid 1")
	return ""
}

// crunContainer is a container of crun's, behind a shell in a mount namespace of its own: crun
// refuses a host that shows it both cgroup versions.
type crunContainer struct {
	in  io.WriteCloser
	out *bufio.Reader
}

const crunScript = `set -e
mount --make-rprivate /
[ "$2" = /sys/fs/cgroup ] || mount --bind "$2" /sys/fs/cgroup
c="crun --root $1/state --cgroup-manager=disabled"
$c run -d --bundle "$1" chatdbench </dev/null >&2
trap '$c delete -f chatdbench' EXIT
echo ready
while read -r line; do $c exec chatdbench /bin/true </dev/null && echo done; done
`

func newCrun(b *testing.B) (*crunContainer, error) {
	if _, err := exec.LookPath("crun"); err != nil {
		return nil, err
	}
	dir, err := crunBundle(b)
	if err != nil {
		return nil, err
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unified := ""
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && unified == "" {
			unified = f[4]
		}
	}
	cmd := exec.Command("unshare", "-m", "sh", "-c", crunScript, "sh", dir, unified)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	c := &crunContainer{in, bufio.NewReader(out)}
	return c, c.hear("ready")
}

// crunBundle is a small container: the host's programs, and namespaces as a session has them.
func crunBundle(b *testing.B) (string, error) {
	dir := b.TempDir()
	for _, d := range []string{"usr", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			return "", err
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		if err := os.Symlink("usr/"+l, filepath.Join(dir, "rootfs", l)); err != nil {
			return "", err
		}
	}
	namespaces := []map[string]string{}
	for _, n := range []string{"pid", "ipc", "uts", "mount"} {
		namespaces = append(namespaces, map[string]string{"type": n})
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.0", "root": map[string]any{"path": "rootfs", "readonly": true},
		"process": map[string]any{"args": []string{"/bin/sleep", "1000"}, "cwd": "/", "user": map[string]int{"uid": 0, "gid": 0}, "env": []string{"PATH=/bin"}},
		"mounts": []map[string]any{{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}}},
		"linux": map[string]any{"namespaces": namespaces},
	})
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
}

func (c *crunContainer) hear(want string) error {
	line, err := c.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != want {
		return fmt.Errorf("crun: heard %q, want %s: %w", line, want, err)
	}
	return nil
}

func (c *crunContainer) exec() error {
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		return err
	}
	return c.hear("done")
}

// BenchmarkRules is the start of a session with a home of 100,000 files: without rules,
// with rules that find nothing there, and with rules that find 1,000 files. ×none is how
// many times that of the first it takes, in the same run.
func BenchmarkRules(b *testing.B) {
	const files, matches = 100_000, 1_000
	opt := ruledOptions(b, "access: {useDefaults: false}")
	m := must.Get(openManager(b.Context(), opt))(b)
	defer m.Close()
	c := sleeper(b, m, "bench")
	defer func() { must.Do(b, m.Reap(operator(b.Context()), c.ID)) }()
	for i := range files {
		dir := filepath.Join(c.Home, fmt.Sprint(i%1000))
		if i < 1000 {
			must.Do(b, os.Mkdir(dir, 0o755))
		}
		name := fmt.Sprint(i)
		if i < matches {
			name = ".found"
		}
		must.Do(b, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	var none float64
	for _, bb := range []struct{ name, rules string }{
		{"none", "access: {useDefaults: false}"},
		{"below=0", "access: {useDefaults: false, deny: [~/nothing]}"},
		{"anywhere=0", `access: {useDefaults: false, deny: ["**/.nothing"]}`},
		{"anywhere=1000", `access: {useDefaults: false, deny: ["**/.found"]}`},
	} {
		must.Do(b, m.Reload(operator(b.Context()), map[string]*filerules.Policy{"ruled": policy(b, bb.rules)}))
		b.Run(bb.name, func(b *testing.B) {
			benchWake(b, m, c.ID)
			each := b.Elapsed().Seconds() / float64(b.N)
			if bb.name == "none" {
				none = each
			}
			b.ReportMetric(each/none, "×none")
		})
	}
}

func benchWake(b *testing.B, m *manager, id chat.ID) {
	for b.Loop() {
		wake(b, m, id)
		b.StopTimer()
		must.Get(m.Sleep(operator(b.Context()), id))(b)
		b.StartTimer()
	}
}
