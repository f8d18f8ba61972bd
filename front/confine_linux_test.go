package front

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// confinedEnv marks the second run of the test binary, which confines itself.
const confinedEnv = "CHATD_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confinedEnv) != "" {
		if err := confined(); err != nil {
			fmt.Println("FAIL", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFrontCannot: after confine no thread can open, start, connect to, trace or end anything; a
// server on descriptors from before answers.
func TestFrontCannot(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confinedEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestFrontCould: without confine the acts of TestFrontCannot are allowed.
func TestFrontCould(t *testing.T) {
	for name, do := range acts() {
		if err := do(); errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// acts are the attempts of a compromised front.
func acts() map[string]func() error {
	return map[string]func() error{
		"open a file":      func() error { return opens("/etc/passwd", os.O_RDONLY) },
		"open a directory": func() error { return opens("/", os.O_RDONLY) },
		"write a file":     func() error { return opens("/dev/null", os.O_WRONLY) },
		"look at a file":   func() error { var st unix.Stat_t; return unix.Stat("/etc/passwd", &st) },
		"read a link":      func() error { _, err := os.Readlink("/proc/self/exe"); return err },
		"start a program":  func() error { return unix.Access("/bin/true", unix.X_OK) },
		"make a socket": func() error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		},
		"end a process":    func() error { return unix.Kill(os.Getpid(), 0) },
		"trace a process":  func() error { return unix.PtraceAttach(1 << 22) }, // of nobody: ESRCH where it may
		"make a namespace": func() error { return unix.Unshare(0) },
		"make a directory": func() error { return unix.Mkdir("/proc/x", 0o700) },
	}
}

func opens(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func confined() error {
	ours, theirs := net.Pipe()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	busy := make(chan struct{})
	go func() { // a thread that is there before
		for range 200 {
			time.Sleep(time.Millisecond)
		}
		close(busy)
	}()
	without := landlock.ABI() == 0
	missing, err := confine()
	if err != nil {
		return err
	}
	if without != (len(missing) > 0) {
		return fmt.Errorf("it says that %v is missing", missing)
	}
	const kind, may = unix.MAP_PRIVATE | unix.MAP_ANON, unix.PROT_READ | unix.PROT_WRITE
	_, err = unix.Mmap(-1, 0, maxData, may, kind)
	if !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("%d bytes of memory: %v, want ENOMEM", maxData, err)
	}
	err = nil
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for range 8 { // on several threads
		wg.Go(func() {
			for name, do := range acts() {
				if err := do(); !errors.Is(err, unix.EPERM) {
					errs <- fmt.Errorf("%s: %v, want EPERM", name, err)
				}
			}
			if err := syscall.Exec("/bin/true", []string{"true"}, nil); !errors.Is(err, unix.EPERM) {
				errs <- fmt.Errorf("exec: %v, want EPERM", err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	<-busy
	return errors.Join(err, serves(ours, theirs), serves(w, r))
}

// serves sends a line from one end to the other.
func serves(to io.Writer, from io.Reader) error {
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(to, "hello\n"); sent <- err }()
	b := make([]byte, 6)
	_, err := io.ReadFull(from, b)
	if err == nil && !strings.HasPrefix(string(b), "hello") {
		err = fmt.Errorf("heard %q", b)
	}
	return errors.Join(err, <-sent)
}
