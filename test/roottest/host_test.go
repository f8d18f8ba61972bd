package roottest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// backendEnv names the backend under test: cgroupfs, which is the default, in
// namespaces of the tests' own, or systemd, on this machine itself: its PID 1
// starts the sessions where its own namespaces are.
const backendEnv = "CHATD_TEST_BACKEND"

// disposable is on a machine that may be changed and thrown away.
const disposable = "/etc/chatd-disposable"

// pamState is the state directory whose private trees pam_namespace(8) mounts, by
// /etc/security/namespace.d/chatd.conf. Each daemon's own is mounted on it.
const pamState = "/var/lib/chatd"

// hostUIDs are the last of chatd's default range, for which
// /etc/security/chatd-limits.conf and the rules of sshd and cron hold.
var hostUIDs = state.Range{Low: 1895694336, High: 1895825407}

// notOnHost are the tests that are not run on the machine itself, and why.
var notOnHost = map[string]string{
	"TestExcusedAccount":      "systemd starts nothing for a user that nobody knows, so that such a host cannot be excused",
	"TestPowerCutAfterCreate": "its state is on a disk of its own, and the machine's PAM stack makes /tmp on the machine's",
	"TestPowerCutAfterReap":   "its state is on a disk of its own, and the machine's PAM stack makes /tmp on the machine's",
	"TestDemo":                "it makes namespaces for its daemon, and PID 1 would start the sessions outside of them",
}

func backend() string { return cmp.Or(os.Getenv(backendEnv), provision.BackendCgroupfs) }

func onHost() bool { return backend() == provision.BackendSystemd }

// leaveOut tells the testing package, and the reader, what does not run here.
func leaveOut() error {
	if !onHost() {
		return nil
	}
	// Each daemon here starts an enforcer of its own, and waits for no unit.
	if err := os.Unsetenv("INVOCATION_ID"); err != nil {
		return fmt.Errorf("cannot change the environment: %w", err)
	}
	flag.Parse()
	names := slices.Sorted(maps.Keys(notOnHost))
	for _, name := range names {
		fmt.Printf("not run with %s=%s: %s: %s\n", backendEnv, backend(), name, notOnHost[name])
	}
	skip := "^(" + strings.Join(names, "|") + ")$"
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		skip = given + "|" + skip
	}
	return flag.Set("test.skip", skip)
}

// machine is what the tests find on the machine itself and leave on it.
type machine struct{ mounts []string }

// takeMachine refuses any machine but a disposable one, and one whose own chatd
// runs: the tests take packet rules and uids that would be its own.
func takeMachine() (machine, error) {
	if _, err := os.Stat(disposable); err != nil {
		return machine{}, fmt.Errorf("%s=%s changes accounts, packet rules and units of the machine itself, so it wants one "+
			"that is thrown away afterwards and says so by the file %s: %w", backendEnv, backend(), disposable, err)
	}
	out, _ := exec.Command("systemctl", "is-active", "chatd.service", "chatd.socket").Output()
	if slices.Contains(strings.Fields(string(out)), "active") {
		return machine{}, errors.New("this machine's own chatd runs: systemctl stop chatd.socket chatd.service")
	}
	// Remove what an earlier, killed run left behind.
	if err := clean(); err != nil {
		return machine{}, err
	}
	mounts, err := mountPoints()
	return machine{mounts}, err
}

// clean removes the units, accounts, directories and packet rules of tests.
func clean() error {
	errs := []error{stopUnits("chatd-test-"), removeAccounts(), flushWalls()}
	worlds, err := filepath.Glob("/srv/w[0-9]*")
	for _, dir := range append(worlds, "/srv/"+attackName) {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(append(errs, err)...)
}

// giveBack removes what tests made that did not end as they should, and raises
// the wall again that the machine had. programs is where their daemons run from.
func (m machine) giveBack(programs string) error {
	errs := []error{endDaemons(programs), clean()}
	mounts, err := mountPoints()
	errs = append(errs, err)
	for _, dir := range slices.Backward(mounts) {
		if !slices.Contains(m.mounts, dir) {
			errs = append(errs, unix.Unmount(dir, unix.MNT_DETACH))
		}
	}
	if exec.Command("systemctl", "is-active", "--quiet", "chatd-wall.service").Run() == nil {
		errs = append(errs, command("systemctl", "restart", "chatd-wall.service"))
	}
	return errors.Join(errs...)
}

// command runs a program that must succeed.
func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot %s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func mountPoints() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for line := range strings.Lines(string(b)) {
		dirs = append(dirs, strings.Fields(line)[4])
	}
	return dirs, nil
}

// endDaemons ends what runs a program of the directory: a test that panics leaves
// its daemon.
func endDaemons(dir string) error {
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range exes {
		program, lerr := os.Readlink(exe)
		if lerr == nil && strings.HasPrefix(program, dir+"/") {
			err = errors.Join(err, syscall.Kill(number(filepath.Base(filepath.Dir(exe))), syscall.SIGKILL))
		}
	}
	return err
}

// sliceOf is where the units of a daemon are that calls its cgroup so; see
// cgroup.Options.
func sliceOf(name string) string { return strings.ReplaceAll(name, "-", "_") + ".slice" }

// stopUnits ends all units of daemons whose cgroup has a name that begins so. A
// slice is stopped with everything in it, and forgotten.
func stopUnits(prefix string) error {
	slices, err := filepath.Glob("/sys/fs/cgroup/" + strings.ReplaceAll(prefix, "-", "_") + "*.slice")
	for _, dir := range slices {
		err = errors.Join(err, command("systemctl", "stop", filepath.Base(dir)))
	}
	units, uerr := filepath.Glob("/sys/fs/cgroup/system.slice/" + prefix + "*-minders.service")
	err = errors.Join(err, uerr)
	for _, dir := range units {
		err = errors.Join(err, command("systemctl", "stop", filepath.Base(dir)))
	}
	if len(slices) > 0 {
		// There being nothing that failed is not a failure.
		_ = exec.Command("systemctl", "reset-failed", prefix+"*").Run()
	}
	return err
}

// removeAccounts removes the records and users of the tests' uids.
func removeAccounts() error {
	files, err := filepath.Glob("/etc/userdb/[0-9]*")
	for _, file := range files {
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		uid, uerr := strconv.ParseUint(name, 10, 32)
		if uerr != nil || !hostUIDs.Contains(uint32(uid)) {
			continue
		}
		record, rerr := os.ReadFile(file)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		if at := strings.Index(string(record), chat.UserPrefix); at >= 0 {
			user := string(record)[at:min(len(record), at+len(chat.UserPrefix)+16)]
			err = errors.Join(err, ignoreGone(os.Remove("/etc/userdb/"+user+filepath.Ext(file))))
		}
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// flushWalls takes all packet rules away, as on a fresh boot: a machine that is
// thrown away has none but chatd's.
func flushWalls() error {
	var err error
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, flag := range []string{"-F", "-X"} {
			err = errors.Join(err, command(tool, "-w", "10", flag))
		}
	}
	return err
}

// showProcesses mounts /proc without hidepid until the test ends: on a machine that
// has it, it is one more wall behind that of the session.
func showProcesses(t *testing.T) {
	t.Helper()
	options := must.Get(exec.Command("findmnt", "-no", "OPTIONS", "/proc").Output())(t)
	if !strings.Contains(string(options), "hidepid=") {
		return
	}
	must.Do(t, command("mount", "-o", "remount,hidepid=off", "/proc"))
	t.Cleanup(func() {
		expect.NoError(t, command("mount", "-o", "remount,"+strings.TrimSpace(string(options)), "/proc"))
	})
}

// mountState mounts the state directory where pam_namespace looks for it, until
// the test ends.
func mountState(t testing.TB, dir string) {
	t.Helper()
	for _, d := range []string{dir, pamState} {
		must.Do(t, os.MkdirAll(d, 0o711))
	}
	must.Do(t, unix.Mount(dir, pamState, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		expect.Is(t, unix.Unmount(pamState, unix.MNT_DETACH), nil, "cannot unmount %s", pamState)
	})
}

// removeUnits removes the units of one daemon, of which none may be left running.
func removeUnits(t testing.TB, name string) {
	left, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", sliceOf(name), name+"-*"))
	expect.True(t, len(left) == 0, "units are left: %v", left)
	expect.NoError(t, stopUnits(name))
	expect.True(t, expect.Err(os.Stat(filepath.Join("/sys/fs/cgroup", sliceOf(name)))) != nil,
		"the slice of %s is left", name)
}
