//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

// insideEnv marks the second run, inside its namespaces, and says where this program lies. Seen
// from there, /proc/self/exe is a file of another mount namespace, and under a chroot its path
// would be wrong.
const insideEnv = "CHATD_DEMO_INSIDE"

// The two ends of the cable between the demo's namespaces, and the uids, which
// lie above chatd's default range.
const (
	ownAddress  = "10.213.77.1"
	peerAddress = "10.213.77.2"
	uids        = "2013265920-2013396991"
)

// inNamespaces runs this program again where it may change things.
func inNamespaces() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "demo: want root: it makes users, cgroups and packet rules, in namespaces of its own")
		return 1
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: cannot find its own program:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"="+self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			fmt.Fprintln(os.Stderr, "demo: cannot run in namespaces of its own:", err)
		}
		return 1
	}
	return 0
}

// host is the demo's little world: a directory, a daemon, and a peer to talk to.
type host struct {
	dir, socket string
	daemon      *exec.Cmd
	peer        *exec.Cmd
}

func newHost() (*host, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("cannot make mounts private: %w", err)
	}
	for _, dir := range []string{"/etc/userdb", "/srv"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return nil, fmt.Errorf("cannot mount over %s: %w", dir, err)
		}
	}
	h := &host{dir: "/srv/chatd-demo", socket: "/srv/chatd-demo/run/chatd.sock"}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, err
	}
	return h, errors.Join(h.writeConfig(), h.startPeer())
}

// writeConfig is what an operator would put into /etc/chatd/chatd.yaml: one
// profile that may reach one address and port. And the backend: systemd would start
// the sessions outside of the namespaces that this program made.
func (h *host) writeConfig() error {
	return os.WriteFile(h.dir+"/chatd.yaml", fmt.Appendf(nil, `state: %[1]s/state
run: %[1]s/run
homes: %[1]s/homes
uids: %[2]s
cgroup: chatd-demo
backend: cgroupfs
profiles:
  default:
    guard: {enable_deny_patterns: false} # what is shown here are the walls
  web:
    guard: {enable_deny_patterns: false}
    egress: ["%[3]s:8000"]
`, h.dir, uids, peerAddress), 0o600)
}

// startPeer makes a second network namespace, joined to the first by a cable,
// in which something listens on two ports: the outside world.
func (h *host) startPeer() error {
	h.peer = exec.Command("unshare", "--net", "sleep", "infinity")
	h.peer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.peer.Start(); err != nil {
		return fmt.Errorf("cannot make a peer: %w", err)
	}
	pid := strconv.Itoa(h.peer.Process.Pid)
	if err := waitForNamespace(pid); err != nil {
		return err
	}
	in := []string{"nsenter", "--net=/proc/" + pid + "/ns/net"}
	for _, line := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", pid},
		{"ip", "addr", "add", ownAddress + "/24", "dev", "cable0"},
		{"ip", "link", "set", "cable0", "up"},
		{"ip", "route", "add", "default", "via", peerAddress},
		append(in, "ip", "addr", "add", peerAddress+"/24", "dev", "cable1"),
		append(in, "ip", "link", "set", "cable1", "up"),
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot run %s: %w: %s", strings.Join(line, " "), err, out)
		}
	}
	for _, port := range []string{"8000", "8001"} {
		if err := h.listenAtPeer(in, port); err != nil {
			return err
		}
	}
	return nil
}

func waitForNamespace(pid string) error {
	own, err := os.Readlink("/proc/self/ns/net")
	for range 200 {
		if ns, e := os.Readlink("/proc/" + pid + "/ns/net"); err == nil && e == nil && ns != own {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(errors.New("cannot make a peer: it stays in this network namespace"), err)
}

// server answers every connection with one word; perl is on every Debian.
const server = `use IO::Socket::INET; $s = IO::Socket::INET->new(LocalAddr => $ARGV[0], LocalPort => $ARGV[1], Listen => 9, ReuseAddr => 1) or die $@; $| = 1; print "u", "p!\n"; while ($c = $s->accept) { print $c "hello\n"; close $c }`

func (h *host) listenAtPeer(in []string, port string) error {
	cmd := exec.Command(in[0], append(in[1:], "perl", "-e", server, peerAddress, port)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, 4))
	}
	if err != nil {
		return fmt.Errorf("cannot listen at the peer: %w", err)
	}
	return nil
}

// startDaemon starts chatd from beside this program and waits until it answers.
func (h *host) startDaemon() error {
	log, err := os.OpenFile(h.dir+"/chatd.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	h.daemon = exec.Command(filepath.Join(filepath.Dir(os.Getenv(insideEnv)), "chatd"), "serve", "--config", h.dir+"/chatd.yaml")
	h.daemon.Stdout, h.daemon.Stderr = log, log
	if err := h.daemon.Start(); err != nil {
		return fmt.Errorf("cannot start chatd: %w", err)
	}
	daemon := client.NewClient(client.ClientOptions{Socket: h.socket})
	defer daemon.Close()
	for range 1200 {
		var st chat.Status // it answers before it has tried its walls, and begins nothing until then
		if st, err = daemon.Status(context.Background()); err == nil && st.Ready {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	b, _ := os.ReadFile(log.Name())
	return fmt.Errorf("cannot reach chatd: %w; it says:\n%s", err, b)
}

// breakWalls is what an unknowing administrator might type. chatd mends it within a minute, and
// packet rules immediately, so it is typed again and again until the demonstration ends.
func (h *host) breakWalls(chats []chat.Chat) {
	say("opening the chats' homes behind chatd's back")
	go func() {
		for ; ; time.Sleep(20 * time.Millisecond) {
			for _, c := range chats {
				_ = os.Chmod(c.Home, 0o755)
				_ = os.Chmod(c.Home+"/secret", 0o644) // not before the chat has made it
			}
		}
	}()
}

func (h *host) killDaemon() {
	if h.daemon.Process == nil {
		return // it never started
	}
	_ = h.daemon.Process.Kill()
	_ = h.daemon.Wait()
}

// close ends what the demo started; the rest ends with its namespaces. A demo
// that failed may leave sessions, which are ended by their cgroup.
func (h *host) close() error {
	if h.daemon != nil {
		h.killDaemon()
	}
	_ = h.peer.Process.Kill()
	for _, dir := range cgroupDirs() {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	}
	var err error
	for range 100 {
		err = nil
		for _, dir := range slices.Backward(cgroupDirs()) {
			err = errors.Join(err, os.Remove(dir))
		}
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func cgroupDirs() []string {
	var dirs []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/chatd-demo") {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}
