package landlock

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// A confined process stays confined, so every case runs in a child: this test
// binary again, which enforces the rules and then tries one thing.
const childEnv = "CHATD_LANDLOCK_CHILD"

type childPlan struct {
	Rules    Rules
	Scope    bool
	Do       string
	A, B     string
	Unwalled bool
}

type childAnswer struct {
	Achieved Result
	Setup    string
	Result   string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		child(text)
		return
	}
	os.Exit(m.Run())
}

func child(text string) {
	var p childPlan
	var a childAnswer
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		a.Setup = err.Error()
	} else if !p.Unwalled {
		got, err := Enforce(p.Rules, 1, p.Scope)
		if a.Achieved = got; err != nil {
			a.Setup = err.Error()
		}
	}
	if a.Setup == "" {
		a.Result = errName(try(p.Do, p.A, p.B))
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		os.Exit(1)
	}
}

func errName(err error) string {
	var e syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return map[syscall.Errno]string{syscall.EACCES: "EACCES", syscall.EXDEV: "EXDEV", syscall.EPERM: "EPERM",
			syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ENOENT: "ENOENT", syscall.EINVAL: "EINVAL"}[e]
	}
	return err.Error()
}

func try(do, a, b string) error {
	switch do {
	case "read":
		_, err := os.ReadFile(a)
		return err
	case "list":
		_, err := os.ReadDir(a)
		return err
	case "write":
		return os.WriteFile(a, []byte("x"), 0o600)
	case "truncate":
		return os.Truncate(a, 0)
	case "exec":
		return exec.Command(a).Run()
	case "rename":
		return os.Rename(a, b)
	case "link":
		return os.Link(a, b)
	case "remove":
		return os.Remove(a)
	case "symlink":
		return os.Symlink("x", a)
	case "dial":
		c, err := net.Dial("unix", a)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return fmt.Errorf("no such act %q", do)
}

func runChild(t *testing.T, p childPlan) childAnswer {
	t.Helper()
	text := must.Get(json.Marshal(p))(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must.True(t, err == nil, "child: %v", err)
	var a childAnswer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("child said %q: %v", out, err)
	}
	must.True(t, a.Setup == "", "child: %s", a.Setup)
	return a
}

// needABI skips on a kernel that has less than n. Where everything should be
// there it fails, unless the machine is known to have no more: then
// CHATD_TEST_LANDLOCK_ABI is what it has, and what it must have.
func needABI(t *testing.T, n int) {
	t.Helper()
	known, err := strconv.Atoi(os.Getenv("CHATD_TEST_LANDLOCK_ABI"))
	switch {
	case err == nil && ABI() < known:
		t.Fatalf("the kernel has Landlock ABI %d, CHATD_TEST_LANDLOCK_ABI is %d", ABI(), known)
	case ABI() >= n:
		return
	case err == nil && known < n:
		t.Skipf("needs Landlock ABI %d, this machine is known to have %d", n, known)
	}
	if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
		t.Fatalf("needs Landlock ABI %d, the kernel has %d", n, ABI())
	}
	t.Skipf("needs Landlock: ABI %d, the kernel has %d", n, ABI())
}

// tree makes the files the cases try: in, in2 (write), ro (read), out (no rule).
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := must.Get(os.ReadFile("/bin/true"))(t)
	for _, d := range []string{"in", "in2", "ro", "out"} {
		must.Do(t, os.Mkdir(filepath.Join(dir, d), 0o755))
		for name, mode := range map[string]os.FileMode{"file": 0o644, "true": 0o755} {
			must.Do(t, os.WriteFile(filepath.Join(dir, d, name), script, mode))
		}
	}
	return dir
}

func TestEnforce(t *testing.T) {
	needABI(t, 1)
	for _, c := range []struct {
		do, a, b, want string
		// free is the answer without Landlock; "" means ok.
		free string
		abi  int
	}{
		{do: "read", a: "in/file", want: "ok"},
		{do: "write", a: "in/new", want: "ok"},
		{do: "symlink", a: "in/link", want: "ok"},
		{do: "exec", a: "in/true", want: "ok"},
		{do: "rename", a: "in/file", b: "in2/moved", want: "ok", abi: 2},
		{do: "link", a: "in/file", b: "in2/linked", want: "ok", abi: 2},
		{do: "read", a: "ro/file", want: "ok"},
		{do: "list", a: "ro", want: "ok"},
		{do: "exec", a: "ro/true", want: "EACCES"},
		{do: "write", a: "ro/file", want: "EACCES"},
		{do: "truncate", a: "ro/file", want: "EACCES", abi: 3},
		{do: "remove", a: "ro/file", want: "EACCES"},
		{do: "read", a: "out/file", want: "EACCES"},
		{do: "list", a: "out", want: "EACCES"},
		{do: "exec", a: "out/true", want: "EACCES"},
		{do: "rename", a: "in/file", b: "out/moved", want: "EACCES"},
		{do: "rename", a: "out/file", b: "in/stolen", want: "EACCES"},
		{do: "link", a: "out/file", b: "in/stolen", want: "EXDEV", abi: 2},
		{do: "write", a: "/proc/self/oom_score_adj", want: "EACCES", free: "EINVAL"},
	} {
		t.Run(c.do+" "+c.a+" "+c.b, func(t *testing.T) {
			needABI(t, c.abi)
			for _, unwalled := range []bool{false, true} {
				dir := tree(t)
				at := func(p string) string {
					if filepath.IsAbs(p) {
						return p
					}
					return filepath.Join(dir, p)
				}
				p := childPlan{Do: c.do, A: at(c.a), B: at(c.b), Unwalled: unwalled, Rules: Rules{
					Write: []string{at("in"), at("in2")}, Read: []string{at("ro")},
					Exec: []string{"/usr", "/lib", "/lib64"}, Devices: []string{"/dev/null"},
				}}
				want := c.want
				if unwalled {
					want = cmp.Or(c.free, "ok") // the negative control: only Landlock refuses it
				}
				if got := runChild(t, p); got.Result != want {
					t.Errorf("unwalled %t: %s, want %s", unwalled, got.Result, want)
				}
			}
		})
	}
}

func TestEnforceScope(t *testing.T) {
	needABI(t, ScopeABI)
	name := fmt.Sprintf("@chatd-landlock-test-%d", os.Getpid())
	l := must.Get(net.Listen("unix", name))(t)
	defer l.Close()
	for scope, want := range map[bool]string{true: "EPERM", false: "ok"} {
		got := runChild(t, childPlan{Do: "dial", A: name, Scope: scope})
		expect.True(t, got.Result == want && got.Achieved.Scoped == scope,
			"scope %t: %s, achieved %+v; want %s", scope, got.Result, got.Achieved, want)
	}
}

func TestEnforceReachesSocketsInWrite(t *testing.T) {
	needABI(t, 1)
	dir := t.TempDir()
	l := must.Get(net.Listen("unix", filepath.Join(dir, "s")))(t)
	defer l.Close()
	got := runChild(t, childPlan{Do: "dial", A: filepath.Join(dir, "s"), Scope: true, Rules: Rules{Write: []string{dir}}})
	expect.True(t, got.Result == "ok", "got %s, want ok", got.Result)
}

func TestAchieved(t *testing.T) {
	needABI(t, 2)
	gone := filepath.Join(t.TempDir(), "gone")
	a := runChild(t, childPlan{Do: "list", A: "/proc/self", Rules: Rules{Read: []string{"/proc", gone}, ReadFiles: []string{"/etc/passwd/x"}}}).Achieved
	if want := min(ABI(), maxABI); a.ABI != want || !a.Refer {
		t.Errorf("got %+v, want ABI %d with refer", a, want)
	}
	expect.True(t, strings.Join(a.Missing, " ") == gone+" /etc/passwd/x",
		"missing: got %q, want %s", a.Missing, gone)
	expect.True(t, a.Rights[0] == "execute" && !strings.ContainsAny(strings.Join(a.Rights, ""), "{}<"),
		"rights: got %q", a.Rights)
}

func TestEnforceRefusesLowABI(t *testing.T) {
	// Refused before anything is done, so this process stays free.
	expect.Is(t, expect.Err(Enforce(Rules{}, ABI()+1, false)), chat.ErrUnsupported, "")
	if _, err := os.ReadFile("/proc/self/status"); err != nil {
		t.Errorf("confined by a refused Enforce: %v", err)
	}
}

func TestEnforceRefusesFileAsDirectory(t *testing.T) {
	needABI(t, 1)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+`={"Rules":{"write":["/etc/passwd"]}}`)
	out, err := cmd.Output()
	expect.True(t, err == nil && strings.Contains(string(out), "cannot enforce Landlock"),
		"got %s, %v; want an error that names the path", out, err)
}
