package roottest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// attackOptions are options whose chats have more CPU time than the default
// quarter, so that a hundred attacks do not take minutes, and whose profile web
// may reach port 8000 of the peer in both families.
func attackOptions(t testing.TB) provision.Options {
	opt := options(t)
	for name, p := range opt.Profiles {
		p.Limits.CPUQuota = 2 * p.Limits.CPUPeriod
		opt.Profiles[name] = p
	}
	v6 := must.Get(chat.ParseAllow("[fd13:213::2]:8000"))(t)
	edit(opt, "web", func(p *chat.Profile) { p.Egress = append(p.Egress, v6) })
	return opt
}

// inmate is a chat with the attacker in its home.
type inmate struct {
	chat.Chat
	m       *manager
	program string
}

// inmateOf makes a chat and puts the attacker into its home.
func inmateOf(t testing.TB, m *manager, external, profile string) inmate {
	t.Helper()
	c := create(t, m, external, profile)
	i := inmate{c, m, filepath.Join(c.Home, attackName)}
	must.Do(t, os.Link(attacker(t), i.program))
	return i
}

// attacker is this test's binary, readable and executable for everybody on the
// file system of the homes; a home gets a hard link to it.
func attacker(t testing.TB) string {
	t.Helper()
	const name = "/srv/" + attackName
	if _, err := os.Stat(name); err != nil { // on the machine itself: enterWorld links it
		must.Do(t, copyAttacker(name))
	}
	return name
}

// copyAttacker copies this test's binary: once for all processes of a run, for it is big.
func copyAttacker(name string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(0o755), to.Close())
}

// tryTimeout is for slow machines; no attack needs more than seconds on another.
const tryTimeout = chat.Duration(10 * time.Minute)

// try is one attack as a run of the chat; the answer is what [attempt] said,
// and the signal or the trouble where it never came to speak.
func (i inmate) try(t testing.TB, args ...string) string {
	t.Helper()
	r, err := i.m.Run(operator(t.Context()), i.ID, chat.RunSpec{Argv: append([]string{i.program}, args...), Timeout: tryTimeout})
	must.True(t, err == nil, "run %q: %v", args, err)
	if r.Signal != "" {
		return r.Signal
	}
	return lastLine(r.Stdout, r.Stderr)
}

func lastLine(stdout, stderr string) string {
	out := strings.TrimSpace(stdout)
	if out == "" {
		return "said nothing but " + strings.TrimSpace(stderr)
	}
	return out[strings.LastIndexByte(out, '\n')+1:]
}

// sh runs a shell command in the chat, which must succeed.
func (i inmate) sh(t testing.TB, command string) string {
	t.Helper()
	r := run(t, i.m, i.ID, command)
	must.True(t, r.Exit == 0, "%s in chat %s: %+v", command, i.ID, r)
	return strings.TrimSpace(r.Stdout)
}

// background keeps an act going in a run of its own until the test ends, and
// returns once the file ready in the chat's home is there.
func (i inmate) background(t testing.TB, ready string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(operator(context.Background()))
	ended := going(func() string {
		r, err := i.m.Run(ctx, i.ID, chat.RunSpec{Argv: append([]string{i.program}, args...), Timeout: chat.MaxTimeout})
		return fmt.Sprint(r, err)
	})
	t.Cleanup(func() { cancel(); <-ended })
	until(t, fmt.Sprintf("%q is ready", args), func() bool {
		select {
		case what := <-ended:
			t.Fatalf("%q ended: %s", args, what)
		default:
		}
		return exists(filepath.Join(i.Home, ready))()
	})
}

// in is a path in the chat's home.
func (i inmate) in(name string) string { return filepath.Join(i.Home, name) }

// pidOf is the pid, on the host, of a process of the chat by its name.
func (i inmate) pidOf(t testing.TB, name string) int {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var st unix.Stat_t
		comm, err := os.ReadFile(dir + "/comm")
		if err == nil && strings.TrimSpace(string(comm)) == name && unix.Stat(dir, &st) == nil && st.Uid == i.UID {
			return number(filepath.Base(dir))
		}
	}
	t.Fatalf("chat %s has no process %s", i.ID, name)
	return 0
}

// asHost is an attack by root on the host, without any wall: the control.
func asHost(t testing.TB, args ...string) string {
	t.Helper()
	return asUser(t, 0, args...)
}

// asUser is an attack by a uid on the host that is in no session.
func asUser(t testing.TB, uid uint32, args ...string) string {
	t.Helper()
	cmd := exec.Command(attacker(t), args...)
	cmd.Args[0] = attackName
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return saidBy(t, cmd)
}

// asCarrier is asUser with sockets as chatd-root makes them for chatd-egress.
func asCarrier(t testing.TB, opt provision.Options, uid uint32, args ...string) string {
	t.Helper()
	cmd := exec.Command(attacker(t), args...)
	cmd.Args[0] = attackName
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: opt.EgressGID}}
	return saidBy(t, cmd)
}

// asUserApart is asUser with a /tmp of its own, for programs that leave files there: a later chat
// of the uid would be said to have left them.
func asUserApart(t testing.TB, uid uint32, args ...string) string {
	t.Helper()
	const apart = `mount -t tmpfs tmpfs /tmp && exec setpriv --reuid="$0" --regid="$0" --clear-groups "$@"`
	return saidBy(t, exec.Command("unshare", append([]string{"--mount", "sh", "-c", apart, fmt.Sprint(uid), attacker(t)}, args...)...))
}

// saidBy is the last line that an attack printed.
func saidBy(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	cmd.Dir = "/"
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return lastLine(stdout.String(), stderr.String())
}

// outcomes checks one attack: what came must be one of the words of want.
func outcomes(t testing.TB, what, got, want string) {
	t.Helper()
	expect.True(t, slices.Contains(strings.Fields(want), strings.Fields(got + " ?")[0]),
		"%s: got %q, want one of: %s", what, got, want)
}

// hostServer is a server of root in the host's own network namespace.
func hostServer(t testing.TB, network, addr string) string {
	t.Helper()
	l := must.Get(net.Listen(network, addr))(t)
	t.Cleanup(func() { l.Close() })
	go answerAll(l)
	return l.Addr().String()
}

// peer is the outside: a process in a network namespace of its own at the other
// end of a wire.
type peer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// wireName is the host's end; it ends with the test's network namespace.
const wireName = "chatd-wire"

func newPeer(t testing.TB) *peer {
	t.Helper()
	p := &peer{cmd: exec.Command(attacker(t), "peer")}
	p.cmd.Args[0] = attackName
	p.cmd.Stderr = os.Stderr
	// It ends with its stdin. PR_SET_PDEATHSIG would end it with the thread that
	// started it, and threads of this program come and go.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	must.Do(t, errors.Join(err1, err2, p.cmd.Start()))
	p.in, p.lines = in, bufio.NewScanner(out)
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		exec.Command("ip", "link", "del", wireName).Run() // gone with the peer, or not made
	})
	must.Do(t, ipCommands([]string{
		fmt.Sprintf("link add %s type veth peer name wire netns %d", wireName, p.cmd.Process.Pid),
		"link set " + wireName + " up",
		"addr add 10.213.0.1/24 dev " + wireName, "addr add 172.16.213.1/24 dev " + wireName,
		"addr add 192.168.213.1/24 dev " + wireName, "addr add 100.64.213.1/24 dev " + wireName,
		"addr add 169.254.213.1/16 dev " + wireName, "addr add 203.0.113.1/24 dev " + wireName,
		"addr add fd13:213::1/64 dev " + wireName + " nodad", "addr add 2001:db8:213::1/64 dev " + wireName + " nodad",
	}))
	got := p.do(t, "up wire")
	must.True(t, got == "ok", "%v", got)
	return p
}

// do has the peer do one thing and returns how it ended.
func (p *peer) do(t testing.TB, line string) string {
	t.Helper()
	must.Get(io.WriteString(p.in, line+"\n"))(t)
	if !p.lines.Scan() {
		t.Fatalf("the peer is gone: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// typeLine types a line into the chat's terminal.
func (i inmate) typeLine(t testing.TB, line string) {
	t.Helper()
	must.Do(t, i.m.Input(operator(t.Context()), i.ID, chat.Input{Text: line, Enter: true}))
}
