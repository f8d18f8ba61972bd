package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// Every test of this package runs in network and mount namespaces of its own: TestMain
// starts the test binary again in a fresh one, with its own firewall rules.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv("CHATD_TEST_NETNS") != "" {
		raiseLoopback()
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "CHATD_TEST_NETNS=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "cannot start the tests in a network namespace:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

func raiseLoopback() {
	if os.Geteuid() != 0 {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot raise lo: %v: %s\n", err, out)
		os.Exit(1)
	}
}

const (
	rangeLow  = 1879048192
	rangeHigh = 1895825407
	probeUID  = rangeHigh
	uidA      = rangeLow + 65536 + 7
	uidB      = rangeLow + 65536 + 8
	uidNone   = rangeLow + 9*65536 // of the range, without a policy
	uidHost   = 4242               // an ordinary user
)

var testOptions = Options{Range: Range{rangeLow, rangeHigh}, ProbeUID: probeUID}

// place is a network namespace: nil is the one the test runs in.
type place struct{ fd int }

var world = struct {
	sync.Once
	outside *place
	err     error
}{}

// outside is the peer namespace, which plays the rest of the internet, joined by
// a veth pair. It is made once and ends with the test process.
func outside(t testing.TB) *place {
	t.Helper()
	must.Root(t, "network namespaces and iptables")
	world.Do(func() { world.outside, world.err = makeOutside() })
	must.True(t, world.err == nil, "%v", world.err)
	return world.outside
}

func makeOutside() (*place, error) {
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := holder.Start(); err != nil {
		return nil, err
	}
	// The descriptor below keeps the namespace; the process is needed only here.
	defer func() { _ = holder.Wait() }()
	defer func() { _ = holder.Process.Kill() }()
	pid := holder.Process.Pid
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	in := fmt.Sprintf("nsenter -t %d -n ", pid)
	for _, line := range []string{
		fmt.Sprintf("ip link add c0 type veth peer name c1 netns %d", pid), "ip link set c0 up",
		in + "ip link set lo up", in + "ip link set c1 up",
		"ip addr add 203.0.113.1/24 dev c0", "ip addr add 10.99.0.1/24 dev c0",
		"ip addr add 2001:db8:1::1/64 dev c0 nodad", "ip addr add fd00:99::1/64 dev c0 nodad",
		in + "ip addr add 203.0.113.5/24 dev c1", in + "ip addr add 203.0.113.6/24 dev c1", in + "ip addr add 10.99.0.2/24 dev c1",
		in + "ip addr add 169.254.169.254/32 dev c1", in + "ip addr add 192.0.2.1/32 dev c1",
		in + "ip addr add 2001:db8:1::5/64 dev c1 nodad", in + "ip addr add 2001:db8:1::6/64 dev c1 nodad",
		in + "ip addr add fd00:99::2/64 dev c1 nodad", in + "ip addr add fd00:ec2::254/128 dev c1 nodad",
		in + "ip addr add 2001:db8::1/128 dev c1 nodad",
		// Else a plain uid could not even open a ping socket.
		"echo '0 2147483647' > /proc/sys/net/ipv4/ping_group_range",
		"ip route add default via 203.0.113.5", "ip -6 route add default via 2001:db8:1::5",
	} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot run %s: %w: %s", line, err, out)
		}
	}
	return &place{fd}, nil
}

// as runs f in a place as a uid, on a thread of its own.
func as(p *place, uid uint32, f func() error) error {
	if p == nil {
		return sys.AsUID(uid, f)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // as in AsUID
			done <- as(p, uid, f)
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Setns(p.fd, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		id := uintptr(uid)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}

// server answers "hello" to everyone and remembers what it was sent.
type server struct {
	port int
	mu   sync.Mutex
	got  string
}

func (s *server) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func (s *server) hear(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got += string(b)
}

// serve listens in p as uid until the test ends; port 0 takes a free one.
func serve(t testing.TB, p *place, uid uint32, host string, port int, proto string) *server {
	t.Helper()
	s := &server{}
	addr := netip.MustParseAddr(host)
	ready, stop := make(chan error, 1), make(chan struct{})
	finished := make(chan error, 1)
	go func() {
		finished <- as(p, uid, func() error {
			fd, err := testSocket(addr, proto)
			if err == nil {
				err = unix.Bind(fd, sockaddr(addr, port))
			}
			if err == nil && proto != "udp" {
				err = unix.Listen(fd, 64)
			}
			if err == nil {
				s.port, err = portOf(fd)
			}
			ready <- err
			if err != nil {
				return err
			}
			s.loop(fd, proto, stop)
			return unix.Close(fd)
		})
	}()
	err := <-ready
	must.True(t, err == nil, "cannot serve %s %s:%d as %d: %v", proto, host, port, uid, err)
	t.Cleanup(func() {
		close(stop)
		<-finished
	})
	return s
}

func (s *server) loop(fd int, proto string, stop chan struct{}) {
	var talks sync.WaitGroup
	defer talks.Wait()
	buf := make([]byte, 256)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20); n <= 0 {
			continue
		}
		if proto == "udp" {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err == nil {
				s.hear(buf[:n])
				_ = unix.Sendto(fd, []byte("hello"), 0, from) // a refused answer is what is tested
			}
			continue
		}
		c, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != nil {
			continue
		}
		talks.Go(func() { s.talk(c, stop) })
	}
}

// talk greets a client and hears it out, however long that takes on a busy host.
func (s *server) talk(c int, stop chan struct{}) {
	defer unix.Close(c)
	buf := make([]byte, 256)
	// Data in the SYN is available before anything else happens.
	if n, _, err := unix.Recvfrom(c, buf, unix.MSG_DONTWAIT); err == nil {
		s.hear(buf[:n])
	}
	_, _ = unix.Write(c, []byte("hello"))
	for {
		select {
		case <-stop:
			return
		default:
		}
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(c), Events: unix.POLLIN}}, 20); n <= 0 {
			continue
		}
		if n, err := unix.Read(c, buf); err == nil {
			s.hear(buf[:n])
		}
		return
	}
}

func testSocket(addr netip.Addr, proto string) (int, error) {
	domain, kind, number := unix.AF_INET6, unix.SOCK_STREAM, 0
	if addr.Is4() {
		domain = unix.AF_INET
	}
	switch proto {
	case "udp":
		kind = unix.SOCK_DGRAM
	case "mptcp":
		number = 262 // IPPROTO_MPTCP
	case "icmp":
		kind, number = unix.SOCK_DGRAM, unix.IPPROTO_ICMP
		if !addr.Is4() {
			number = unix.IPPROTO_ICMPV6
		}
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, number)
	if err == nil {
		patient(fd, 4*time.Second)
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	return fd, err
}

func patient(fd int, d time.Duration) {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
}

func portOf(fd int) (int, error) {
	name, err := unix.Getsockname(fd)
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return a.Port, nil
	case *unix.SockaddrInet6:
		return a.Port, nil
	}
	return 0, err
}

// ask sends "secret" and reads the answer: "answered", "refused" or "silent".
func ask(p *place, uid uint32, host string, port int, proto string) string {
	return outcome(as(p, uid, func() error {
		return talkTo(netip.MustParseAddr(host), port, proto, testSocket)
	}))
}

// talkTo sends over a socket that makes makes, and reads one answer.
func talkTo(
	addr netip.Addr, port int, proto string, makes func(netip.Addr, string) (int, error),
) error {
	fd, err := makes(addr, proto)
	if err != nil {
		return fmt.Errorf("no socket: %v", err) // not %w: no refusal by the wall
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Connect(fd, sockaddr(addr, port)); err != nil {
		return err
	}
	words := []byte("secret")
	if proto == "icmp" {
		words = append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, words...)
		if !addr.Is4() {
			words[0] = 128
		}
	}
	if _, err := unix.Write(fd, words); err != nil {
		return err
	}
	n, err := unix.Read(fd, make([]byte, 64))
	if err == nil && n == 0 {
		return unix.ENODATA
	}
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "answered"
	case refused(err), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ECONNRESET):
		return "refused"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.ENODATA):
		return "silent"
	}
	return err.Error()
}

// run runs a shell line as root in the test's namespace.
func run(t testing.TB, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", line).CombinedOutput()
	must.True(t, err == nil, "cannot run %s: %v: %s", line, err, out)
	return strings.TrimSpace(string(out))
}

// backends are the iptables of this host that can be tried, each program once: the host's own
// is one of the others where the distribution lets one choose.
func backends() map[string]tools {
	all := map[string]tools{"host": hostTools}
	own := programOf(hostTools.iptables)
	for _, kind := range []string{"nft", "legacy"} {
		set := tools{"iptables-" + kind, "ip6tables-" + kind, "iptables-" + kind + "-restore", "ip6tables-" + kind + "-restore"}
		if program := programOf(set.iptables); program != "" && program != own {
			all[kind] = set
		}
	}
	return all
}

// eachBackend runs a test with each.
func eachBackend(t *testing.T, test func(*testing.T, tools)) {
	t.Helper()
	must.Root(t, "network namespaces and iptables")
	for name, set := range backends() {
		t.Run(name, func(t *testing.T) { test(t, set) })
	}
}

// programOf is the file that is run by that name; "" where there is none.
func programOf(name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return ""
	}
	return path
}

// newTable opens a wall that is taken away again when the test ends.
func newTable(t testing.TB, set tools) *Table {
	t.Helper()
	must.Root(t, "network namespaces and iptables")
	table := must.Get(open(testOptions, set))(t)
	t.Cleanup(func() { expect.NoError(t, table.Remove(context.Background())) })
	return table
}

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
}
