//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/must"
)

const configFile = "/etc/chatd/chatd.yaml"

// The outside: a network namespace at the other end of a wire. What listens on
// port 8000 the profile "web" may reach, on 8001 nobody of chatd's.
const (
	outside   = "chatd-e2e"
	outsideV4 = "10.213.0.2"
	outsideV6 = "fd00:213::2"
)

// profiles are for these tests only. They stand in front of the operator's own.
const profiles = `
  small:
    limits: {memory_max: 64MiB, pids_max: 80, cpu_quota: 500ms}
  narrow:
    limits: {disk_max: 8MiB, inodes_max: 100}
  web:
    egress: ["10.213.0.2:8000", "[fd00:213::2]:8000"]
  own:
    network: own
    egress: ["10.213.0.2:8000", "[fd00:213::2]:8000", "10.213.0.2:8002"]
  stuffed:
    skeleton: /usr/local/share/chatd-e2e
  freezes:
    freeze_after: 5s
  ruled:
    access_file: ` + rulesFile + `
`

// rulesFile are the file rules of profile ruled.
const rulesFile = "/etc/chatd/e2e-rules.yaml"

const rules = `access: {useDefaults: true}
`

var profilesOnce, outsideOnce sync.Once

// useProfiles adds the profiles to the config until the process ends.
func useProfiles(t testing.TB) {
	t.Helper()
	var err error
	profilesOnce.Do(func() { err = addProfiles() })
	must.Do(t, err)
}

func addProfiles() error {
	if err := os.MkdirAll(skeleton, 0o755); err != nil {
		return fmt.Errorf("cannot make the skeleton: %w", err)
	}
	old, err := os.ReadFile(configFile)
	if err != nil {
		return fmt.Errorf("cannot read the config: %w", err)
	}
	if err := os.MkdirAll(notes, 0o700); err != nil {
		return fmt.Errorf("cannot make %s: %w", notes, err)
	}
	// An earlier process may have been killed before it put the config back.
	if kept, err := os.ReadFile(notes + "/chatd.yaml"); err == nil {
		old = kept
	} else if err := os.WriteFile(notes+"/chatd.yaml", old, 0o600); err != nil {
		return fmt.Errorf("cannot keep the config: %w", err)
	}
	undo = append(undo, func() error {
		if err := errors.Join(writeConfig(string(old)), tryRestart()); err != nil {
			return err
		}
		return errors.Join(os.Remove(rulesFile), os.Remove(notes+"/chatd.yaml"))
	})
	if err := os.WriteFile(rulesFile, []byte(rules), 0o600); err != nil {
		return fmt.Errorf("cannot write the rules: %w", err)
	}
	if err := writeConfig(withProfiles(string(old))); err != nil {
		return err
	}
	return tryRestart()
}

// withProfiles puts the profiles at the head of the config's, or at its end.
func withProfiles(config string) string {
	var b strings.Builder
	found := false
	for line := range strings.Lines(config) {
		if bare := strings.TrimSpace(strings.SplitN(line, "#", 2)[0]); strings.HasPrefix(line, "profiles:") {
			found = true
			b.WriteString("profiles:" + profiles)
			if bare == "profiles:" || strings.HasSuffix(bare, "{}") {
				continue
			}
		}
		b.WriteString(line)
	}
	if !found {
		b.WriteString("\nprofiles:" + profiles)
	}
	return b.String()
}

// writeConfig keeps the file's owner and mode.
func writeConfig(text string) error {
	f, err := os.OpenFile(configFile, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("cannot write the config: %w", err)
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// useOutside makes the outside until the process ends.
func useOutside(t testing.TB) {
	t.Helper()
	var err error
	outsideOnce.Do(func() { err = makeOutside() })
	must.Do(t, err)
}

func makeOutside() error {
	_, _ = try(timeout, "ip", "netns", "del", outside) // of a process that was killed
	undo = append(undo, func() error {
		_, err := try(timeout, "ip", "netns", "del", outside)
		return err
	})
	script := `set -e
ip netns add chatd-e2e
ip link add e2e0 type veth peer name e2e1 netns chatd-e2e
ip addr add 10.213.0.1/24 dev e2e0; ip -6 addr add fd00:213::1/64 dev e2e0 nodad; ip link set e2e0 up
ip netns exec chatd-e2e sh -ec 'ip link set lo up
ip addr add 10.213.0.2/24 dev e2e1; ip -6 addr add fd00:213::2/64 dev e2e1 nodad; ip link set e2e1 up'`
	if _, err := try(timeout, "sh", "-c", script); err != nil {
		return err
	}
	if err := answerOutside(net.JoinHostPort(outsideV4, "8002")); err != nil {
		return err
	}
	for _, address := range []string{outsideV4, outsideV6} {
		for _, port := range []string{"8000", "8001"} {
			if err := answerOutside(net.JoinHostPort(address, port)); err != nil {
				return err
			}
		}
	}
	return nil
}

// answerOutside serves TCP and UDP at an address of the outside: a socket belongs
// to the namespace of the thread that makes it.
func answerOutside(address string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		ns, err := os.Open("/run/netns/" + outside)
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("cannot enter the outside: %w", err)
			return
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			go answer(l)
			_, err = net.ListenPacket("udp", address)
		}
		done <- err
	}()
	return <-done
}

// late is what port 8002 says, when a test says it.
var late = make(chan string, 1)

// answer sends each caller one line: to port 8002 when there is one.
func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if c.LocalAddr().(*net.TCPAddr).Port == 8002 {
			go func() { _, _ = c.Write([]byte(<-late)); _ = c.Close() }()
			continue
		}
		_, _ = c.Write([]byte("outside\n"))
		_ = c.Close()
	}
}

// dial connects as a user from the host's own network namespace; see [dialOf].
func dial(uid uint32, network, address string) error { return dialOf(uid, uid, network, address) }

// dialOf connects as a uid and gid from the host's own network namespace and wants a line
// in answer; of UDP it only sends. The thread becomes them by raw calls, which
// change no other thread, and is thrown away.
func dialOf(uid, gid uint32, network, address string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- dialOf(uid, gid, network, address) // the main thread cannot end
			runtime.UnlockOSThread()
			return
		}
		u, g := uintptr(uid), uintptr(gid)
		_, _, group := unix.RawSyscall(unix.SYS_SETRESGID, g, g, g)
		_, _, user := unix.RawSyscall(unix.SYS_SETRESUID, u, u, u)
		if group != 0 || user != 0 {
			done <- fmt.Errorf("cannot become uid %d: %w", uid, errors.Join(group, user))
			return
		}
		done <- connect(network, address)
	}()
	return <-done
}

// carrierGID is the gid of the sockets that chatd-root makes for chatd-egress.
func carrierGID(t testing.TB) uint32 {
	t.Helper()
	gid := must.Get(strconv.ParseUint(output(t, "id", "-g", "chatd-egress"), 10, 32))(t)
	return uint32(gid)
}

func connect(network, address string) error {
	c, err := net.DialTimeout(network, address, 20*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello\n")); err != nil || network == "udp" {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = c.Read(make([]byte, 8))
	return err
}

// refused says whether a wall answered immediately, as opposed to silence.
func refused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)
}

// listenAnywhere answers on every address of the host and returns the port.
func listenAnywhere() (port string, err error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w", err)
	}
	go answer(l)
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, err
}
