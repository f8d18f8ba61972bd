package scan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/landlock"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// confinedEnv names a directory for the second run of the test binary, which confines itself.
const confinedEnv = "CHATD_TEST_CONFINED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(confinedEnv); dir != "" {
		if err := confined(dir); err != nil {
			fmt.Println("FAIL", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestCannot: a walker reads directories that it does not own, and can do nothing else.
func TestCannot(t *testing.T) {
	needsRoot(t)
	dir := closedDir(t)
	self := must.Get(os.ReadFile("/proc/self/exe"))(t)
	program := filepath.Join(filepath.Dir(dir), "walker")
	must.Do(t, os.WriteFile(program, self, 0o755), os.Chmod(filepath.Dir(dir), 0o755))
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = "/", []string{confinedEnv + "=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: anyUID, Gid: anyUID},
		AmbientCaps: []uintptr{unix.CAP_DAC_READ_SEARCH},
	}
	out, err := cmd.CombinedOutput()
	expect.True(t, err == nil, "%v\n%s", err, out)
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confinedEnv+"="+dir)
	out, err = cmd.CombinedOutput()
	expect.True(t, err != nil, "it confines itself as root, with every capability: %s", out)
}

// TestCould: without confine the acts of TestCannot are allowed.
func TestCould(t *testing.T) {
	needsRoot(t)
	for name, act := range acts(closedDir(t)) {
		err := act()
		expect.True(t, !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES), "%s: %v", name, err)
	}
}

// closedDir is a directory that only root may enter, with a file and a directory in it.
func closedDir(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("", "chatd-scan-") // a chat's uid can reach it
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(top)) })
	dir := filepath.Join(top, "closed")
	must.Do(t, os.MkdirAll(filepath.Join(dir, "below"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600))
	return dir
}

// acts are the attempts of a compromised walker.
func acts(dir string) map[string]func() error {
	opens := func(flags uint64) func() error {
		return func() error {
			how := unix.OpenHow{Flags: flags}
			fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Join(dir, "secret"), &how)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	}
	made := func(fd int, err error) error {
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}
	const stream = unix.SOCK_STREAM
	all := map[string]func() error{
		"open by name":     func() error { return made(unix.Open(dir, unix.O_RDONLY, 0)) },
		"write a file":     func() error { return unix.Truncate(filepath.Join(dir, "secret"), 0) },
		"make a directory": func() error { return unix.Mkdir(filepath.Join(dir, "new"), 0o700) },
		"change an owner":  func() error { return unix.Chown(dir, 0, 0) },
		"start a program":  func() error { return unix.Access("/bin/true", unix.X_OK) },
		"a unix socket":    func() error { return made(unix.Socket(unix.AF_UNIX, stream, 0)) },
		"a TCP socket":     func() error { return made(unix.Socket(unix.AF_INET, stream, 0)) },
		"end a process":    func() error { return unix.Kill(os.Getpid(), 0) },
		"make a namespace": func() error { return unix.Unshare(0) },
		"read a link": func() error {
			_, err := unix.Readlink("/proc/self/exe", make([]byte, 9))
			return err
		},
	}
	if landlock.ABI() > 0 {
		all["read a file"] = opens(unix.O_RDONLY)
		all["open a file to write"] = opens(unix.O_WRONLY)
	}
	return all
}

// confined tries the acts, and then what a walk does.
func confined(dir string) error {
	all, without := acts(dir), landlock.ABI() == 0 // the filter refuses to say it later
	missing, err := confine()
	if err != nil {
		return err
	}
	if without != (len(missing) > 0) {
		return fmt.Errorf("it says that %q is missing", missing)
	}
	for name, act := range all {
		if err := act(); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("%s: %w, want EPERM or EACCES", name, err)
		}
	}
	fd, err := sys.OpenOnMount(unix.AT_FDCWD, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("cannot open a directory: %w", err)
	}
	var st unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Close(fd)); err != nil {
		return err
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY}
	fd, err = unix.Openat2(unix.AT_FDCWD, dir, &how)
	if err != nil {
		return fmt.Errorf("cannot open a closed directory: %w", err)
	}
	names, err := os.NewFile(uintptr(fd), dir).Readdirnames(-1)
	if err != nil || len(names) != 2 {
		return fmt.Errorf("in a closed directory it sees %q, %w", names, err)
	}
	return nil
}
