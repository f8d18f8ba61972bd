package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// mountEmpty mounts an empty tmpfs over a directory of the host until the test ends: the tests have
// a mount namespace of their own.
func mountEmpty(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// outside runs a program of the host as a uid, outside every session.
func outside(t *testing.T, uid uint32, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// sysVOf lists what a uid has of the host's System V objects.
func sysVOf(t *testing.T, uid uint32) (all []string) {
	t.Helper()
	for file, col := range map[string]int{"shm": 7, "sem": 4, "msg": 7} {
		b, err := os.ReadFile("/proc/sysvipc/" + file)
		must(t, err)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > col && f[col] == strconv.FormatUint(uint64(uid), 10) {
				all = append(all, file+" "+f[1])
			}
		}
	}
	return all
}

// TestReapSweeps: what lies about of a chat's uid where other daemons of the host keep things by
// user goes with the chat, and what is of its neighbour stays.
func TestReapSweeps(t *testing.T) {
	m := open(t, options(t))
	gone, stays := asleep(t, m, "is swept"), asleep(t, m, "is not swept")
	for _, dir := range []string{"/var/spool", "/var/mail", "/var/lib/systemd", "/run/user"} {
		mountEmpty(t, dir)
	}
	if _, err := os.Stat("/dev/mqueue"); err != nil {
		must(t, os.Mkdir("/dev/mqueue", 0o755))
	}
	must(t, unix.Mount("mqueue", "/dev/mqueue", "mqueue", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/dev/mqueue", unix.MNT_DETACH)) })
	files := map[chat.ID][]string{}
	strays := map[chat.ID]*exec.Cmd{}
	for _, c := range []chat.Chat{gone, stays} {
		uid := strconv.FormatUint(uint64(c.UID), 10)
		files[c.ID] = []string{
			"/var/spool/cron/crontabs/" + c.User, "/var/spool/cron/atjobs/a" + uid, "/var/spool/cron/atspool/a" + uid, "/var/mail/" + c.User,
			"/var/lib/systemd/linger/" + c.User, "/run/user/" + uid + "/bus", "/dev/mqueue/" + uid, "/dev/shm/chatd-test-" + uid,
		}
		for _, name := range files[c.ID] {
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			f, err := os.Create(name) // with no write: of a message queue that is an error
			must(t, err)
			must(t, f.Close())
			must(t, os.Chown(name, int(c.UID), int(c.UID)))
		}
		out, err := outside(t, c.UID, "ipcmk", "-M", "4096", "-Q", "-S", "1").CombinedOutput()
		if err != nil || len(sysVOf(t, c.UID)) != 3 {
			t.Fatalf("ipcmk: %v, %s, %q", err, out, sysVOf(t, c.UID))
		}
		strays[c.ID] = outside(t, c.UID, "sleep", "1234567")
		must(t, strays[c.ID].Start())
	}
	ended := make(chan error, 1)
	go func() { ended <- strays[gone.ID].Wait() }()
	must(t, m.Reap(operator(t.Context()), gone.ID))
	var exit *exec.ExitError
	err := <-ended
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	// The manager, which is in this process, collects orphans of the uid, and may have come first.
	if !killed && !errors.Is(err, unix.ECHILD) {
		t.Errorf("the stray process ended with %v", err)
	}
	for _, name := range files[gone.ID] {
		if exists(name)() {
			t.Errorf("%s is left", name)
		}
	}
	if left := sysVOf(t, gone.UID); len(left) > 0 {
		t.Errorf("System V objects are left: %q", left)
	}
	for _, name := range files[stays.ID] {
		if !exists(name)() {
			t.Errorf("%s of the neighbour is gone", name)
		}
	}
	if left := sysVOf(t, stays.UID); len(left) != 3 {
		t.Errorf("the neighbour has %q", left)
	}
	if err := strays[stays.ID].Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the neighbour's process: %v", err)
	}
	must(t, strays[stays.ID].Process.Kill())
	_ = strays[stays.ID].Wait()
	must(t, m.Reap(operator(t.Context()), stays.ID)) // what was made for it goes too
}

// TestUIDRangeTaken: a range of uids that an account, a group or subordinate ids of the host meet
// is refused before anything is made, with what to do.
func TestUIDRangeTaken(t *testing.T) {
	low := testUIDs.Low + 1000
	for name, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("taken:x:%d:100::/:/bin/false", low+5),
		"/etc/group":  fmt.Sprintf("taken:x:%d:", low+6),
		"/etc/subuid": fmt.Sprintf("taken:%d:10", low-4),
		"/etc/subgid": fmt.Sprintf("taken:%d:65536", low+7),
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			opt := options(t)
			opt.UIDs = state.Range{Low: low, High: low + 999}
			opt.State = filepath.Join(filepath.Dir(opt.State), "unmade") // options made the other
			was, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			t.Cleanup(func() { must(t, os.WriteFile(name, was, 0o644)) })
			must(t, os.WriteFile(name, append(append([]byte{}, was...), line+"\n"...), 0o644))
			m, err := openManager(t.Context(), opt)
			if err == nil {
				must(t, m.Close())
			}
			if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "taken") || !strings.Contains(err.Error(), "set uids to a free range") {
				t.Errorf("%v", err)
			}
			if exists(filepath.Join(opt.State, "install.key"))() || exists(opt.Run)() || exists(opt.Homes)() {
				t.Errorf("something was made in %s, %s or %s", opt.State, opt.Run, opt.Homes)
			}
		})
	}
}

// TestReapNamesWhatItLeaves: files of the uid in what was exposed for writing, and in the host's
// /tmp, outlive the chat, and the audit log says where they are.
func TestReapNamesWhatItLeaves(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "leaves files", "shop")
	run(t, m, c.ID, "echo mine >~/shared/mine")
	loose := fmt.Sprintf("/tmp/chatd-test-%d", c.UID)
	must(t, os.WriteFile(loose, nil, 0o600))
	t.Cleanup(func() { must(t, os.Remove(loose)) })
	must(t, os.Chown(loose, int(c.UID), int(c.UID)))
	must(t, m.Reap(operator(t.Context()), c.ID))
	log, err := os.ReadFile(filepath.Join(opt.State, "audit.jsonl"))
	must(t, err)
	for _, name := range []string{loose, s.at("shared/mine")} {
		if !exists(name)() {
			t.Errorf("%s is gone", name)
		}
		if !strings.Contains(string(log), `"outcome":"left"`) || !strings.Contains(string(log), name) {
			t.Errorf("the audit log does not name %s", name)
		}
	}
}
