package roottest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// workersEnv is how many tests run beside each other, each in a process and in
// namespaces of its own. Without it one process runs them all, in their order.
const workersEnv = "CHATD_TEST_WORKERS"

// workerEnv numbers the worker whose process this is, below maxWorkers: each has uids
// of its own.
const workerEnv, maxWorkers = "CHATD_ROOTTEST_WORKER", 8

// aloneEnv is set where no other root test runs, which a test asks for by ending its
// process with exitAlone (see alone).
const aloneEnv, exitAlone = "CHATD_ROOTTEST_ALONE", 75

// besideEnv names a file that is there while packages beside this one are tested.
const besideEnv = "CHATD_TEST_BESIDE"

// workers says how many tests run simultaneously. Benchmarks, and tests that have the machine
// itself, want it for themselves.
func workers() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(workersEnv), "1"))
	if err != nil || flagSet("test.bench") || flagSet("test.list") || onHost() {
		return 1
	}
	return min(n, maxWorkers)
}

func flagSet(name string) bool { return flag.Lookup(name).Value.String() != "" }

// alone is the first call of a test that measures what others would change: among others
// its process ends here, and it runs when they have ended.
func alone(testing.TB) {
	if os.Getenv(workerEnv) != "" && os.Getenv(aloneEnv) == "" {
		os.Exit(exitAlone)
	}
}

// runBeside runs each test that the flags name in a process of its own, n simultaneously, and then
// those that want to be alone. It prints what each said when it ends. Its exit code is 1 if one
// failed.
func runBeside(ctx context.Context, dir string, n int) (code int, err error) {
	names, err := testNames(ctx, dir)
	if err != nil {
		return 1, err
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		next  = make(chan string)
		later []string
	)
	ended := func(name string, said []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == exitAlone {
			later = append(later, name)
			return
		}
		if err != nil {
			code = 1
		}
		_, _ = os.Stdout.Write(said)
	}
	for worker := range n {
		wg.Go(func() {
			for name := range next {
				said, err := runOne(ctx, dir, name, fmt.Sprintf("%s=%d", workerEnv, worker))
				ended(name, said, err)
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	wg.Wait()
	if err := othersEnd(ctx); err != nil {
		return 1, err
	}
	for _, name := range later {
		said, err := runOne(ctx, dir, name, workerEnv+"=0", aloneEnv+"=1")
		ended(name, said, err)
	}
	return code, nil
}

// othersEnd returns when no other package is tested any more, or with ctx.
func othersEnd(ctx context.Context) error {
	for file := os.Getenv(besideEnv); file != ""; {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot wait for the tests of other packages: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	return nil
}

// testNames asks the binary which tests -test.run and -test.skip leave.
func testNames(ctx context.Context, dir string) ([]string, error) {
	run, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	out, err := inside(ctx, dir, "-test.list="+cmp.Or(run, ".")).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the tests: %w", err)
	}
	var skip *regexp.Regexp
	if s := flag.Lookup("test.skip").Value.String(); s != "" && !strings.Contains(s, "/") {
		if skip, err = regexp.Compile(s); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Test") && (skip == nil || !skip.MatchString(name)) {
			names = append(names, name)
		}
	}
	return names, nil
}

// runOne runs one test, or those of its subtests that -test.run names.
func runOne(ctx context.Context, dir, name string, env ...string) (said []byte, err error) {
	pattern := "^" + name + "$"
	if _, sub, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		pattern += "/" + sub
	}
	cmd := inside(ctx, dir, append(os.Args[1:], "-test.run="+pattern)...)
	cmd.Env = append(cmd.Env, env...)
	said, err = cmd.CombinedOutput()
	if cmd.Process != nil && !onHost() {
		err = errors.Join(err, endWorld(srvOf(dir, cmd.Process.Pid)))
	}
	if err != nil {
		said = fmt.Appendf(said, "%s: %v\n", name, err)
	}
	return verdicts.ReplaceAll(said, nil), err
}

// endWorld removes what a test process had as its /srv. No account may be left there: the next
// test of this worker has the same uids.
func endWorld(srv string) error {
	left, err := filepath.Glob(srv + "/.etc/userdb/*")
	if len(left) > 0 {
		err = fmt.Errorf("accounts are left: %q", left)
	}
	return errors.Join(err, os.RemoveAll(srv))
}

// verdicts are the lines with which each process ends, which would be taken for
// those of the whole.
var verdicts = regexp.MustCompile(`(?m)^\x16?(PASS|FAIL|ok)\n`)

// inside is this binary once more, in namespaces of its own, which end with ctx.
func inside(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), insideEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if !onHost() {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS
	}
	return cmd
}

// TestWorkers runs two tests beside each other, of which one fails.
func TestWorkers(t *testing.T) {
	must.True(t, os.Getenv("CHATD_TEST_FAIL") == "", "as asked for")
	if onHost() {
		return // there they run one after another
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^Test(Workers|RequiredLayers|Alone)$")
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, insideEnv+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, workersEnv+"=2", "CHATD_TEST_FAIL=1")
	out, err := cmd.CombinedOutput()
	expect.True(t, err != nil && bytes.Contains(out, []byte("--- FAIL: TestWorkers")),
		"a test that fails beside others is not told: %v: %s", err, out)
	said := out[bytes.LastIndex(out, []byte("=== RUN")):]
	expect.True(t, bytes.Contains(said, []byte("--- PASS: TestAlone")),
		"a test that wants to be alone is not the last: %s", out)
}

// TestAlone wants to be alone; see TestWorkers.
func TestAlone(t *testing.T) {
	alone(t)
}
