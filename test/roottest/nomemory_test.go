package roottest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// watchedName is this program where it becomes a chatd whose system calls a test answers.
const watchedName = "chatd-watched"

// watched are the system calls that a host without memory fails. Of clone(2) only processes are:
// the runtime ends the program where it gets no thread.
var watched = []uint32{
	unix.SYS_CLONE3, unix.SYS_PIPE2, unix.SYS_SOCKETPAIR, unix.SYS_MEMFD_CREATE, unix.SYS_MOUNT,
	unix.SYS_UNSHARE, unix.SYS_SETNS,
}

// becomeWatched hands the listener of a filter to the test, and executes what the arguments say.
func becomeWatched() int {
	runtime.LockOSThread()
	const number, flags = 0, 16 // of struct seccomp_data
	ld := func(at uint32) unix.SockFilter { return unix.SockFilter{Code: 0x20, K: at} }
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: 0x06, K: k} }
	jump := func(code uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: code, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	const jeq, jset = 0x15, 0x45
	filter := []unix.SockFilter{ld(number)}
	for i, nr := range watched { // to the last one
		filter = append(filter, jump(jeq, nr, len(watched)-i+3, 0))
	}
	filter = append(filter, jump(jeq, unix.SYS_CLONE, 0, 2), ld(flags),
		jump(jset, unix.CLONE_THREAD, 0, 1), ret(unix.SECCOMP_RET_ALLOW),
		ret(unix.SECCOMP_RET_USER_NOTIF))
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		fmt.Fprintln(os.Stderr, "cannot watch system calls:", errno)
		return 1
	}
	err := errors.Join(unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0),
		unix.Close(int(fd)), unix.Close(3), unix.Exec(os.Args[1], os.Args[1:], os.Environ()))
	fmt.Fprintln(os.Stderr, "cannot become chatd:", err)
	return 1
}

// scarce answers the watched system calls of one chatd-root.
type scarce struct {
	*daemon
	listener int

	mu         sync.Mutex
	seen       int // calls since it was armed
	from, upTo int // those that fail, by their number; none if equal
	failed     int
}

func startScarce(t *testing.T, opt provision.Options) *scarce {
	t.Helper()
	dir := filepath.Dir(opt.State)
	config := configFile(t, opt)
	log := must.Get(os.Create(filepath.Join(dir, "chatd.log")))(t)
	defer log.Close()
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{watchedName, programs.chatd, "serve", "--config", config}
	cmd.ExtraFiles = []*os.File{theirs}
	s := &scarce{daemon: &daemon{cmd: cmd, log: log.Name(), ready: make(chan struct{})}}
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+s.listen(t, dir))
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, errors.Join(cmd.Start(), theirs.Close()))
	t.Cleanup(s.kill)
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	must.Do(t, errors.Join(err, unix.Close(pair[0])))
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		text, _ := os.ReadFile(s.log)
		t.Fatalf("no listener: %v\n%s", err, text)
	}
	fds := must.Get(unix.ParseUnixRights(&messages[0]))(t)
	s.listener = fds[0]
	go s.answer()
	s.Client = client.NewClient(client.ClientOptions{Socket: filepath.Join(opt.Run, "chatd.sock")})
	s.waitUp(t)
	s.waitReady(t)
	return s
}

// watchedCall is struct seccomp_notif of seccomp_unotify(2); watchedReply is seccomp_notif_resp.
type watchedCall struct {
	id         uint64
	pid, flags uint32
	data       [64]byte
}

type watchedReply struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// answer lets every call go on but those that fail, until nobody makes any more.
func (s *scarce) answer() {
	for {
		var n watchedCall
		fds := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		if err != nil && err != unix.EINTR || fds[0].Revents&unix.POLLHUP != 0 {
			return
		}
		if s.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // its caller was ended
		}
		r := watchedReply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if s.fails(int(n.pid)) {
			r.flags, r.err = 0, -int32(unix.ENOMEM)
		}
		s.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // its caller may be gone
	}
}

func (s *scarce) control(request uintptr, p unsafe.Pointer) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), request, uintptr(p))
	return errno
}

// fails counts a call of chatd-root's, and says whether it fails.
func (s *scarce) fails(tid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	thread := fmt.Sprintf("/proc/%d/task/%d", s.cmd.Process.Pid, tid)
	if s.from == s.upTo || !exists(thread)() {
		return false
	}
	s.seen++
	if s.seen <= s.from || s.seen > s.upTo {
		return false
	}
	s.failed++
	return true
}

// arm lets calls fail from one number on, up to another; it returns how many failed before.
func (s *scarce) arm(from, upTo int) (failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed = s.failed
	s.seen, s.failed, s.from, s.upTo = 0, 0, from, upTo
	return failed
}

// TestNoMemory: system calls of chatd-root that want memory of the kernel fail with ENOMEM, one
// or several at a random moment of a chat's life. Calls fail and say so, or are done; chatd-root
// lives, nothing is half done, and all goes on.
func TestNoMemory(t *testing.T) {
	needsNamespaces(t, "chatd is a service there")
	opt := options(t)
	s := startScarce(t, opt)
	ctx := t.Context()
	rounds, met, refused := 60, 0, 0
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		spec := chat.Spec{ExternalID: fmt.Sprint("scarce ", i%3)}
		from := rand.IntN(80)
		s.arm(from, from+1<<rand.IntN(5))
		c, _, err := s.Create(ctx, spec)
		errs := []error{err}
		if err == nil {
			errs = append(errs, expect.Err(s.Run(ctx, c.ID, brief)), expect.Err(s.Sleep(ctx, c.ID)),
				expect.Err(s.Wake(ctx, c.ID)), expect.Err(s.StartRun(ctx, c.ID, brief)))
		}
		if i%2 == 0 && err == nil {
			errs = append(errs, s.Reap(ctx, c.ID))
		}
		met += s.arm(0, 0)
		for _, err := range errs {
			if err == nil {
				continue
			}
			refused++
			says := strings.Contains(err.Error(), unix.ENOMEM.Error())
			if !says && !errors.Is(err, chat.ErrBusy) {
				t.Errorf("from the call %d on: %v", from, err)
			}
		}
		made, _, err := s.Create(ctx, spec)
		if err != nil || s.isOver() {
			t.Fatalf("after the call %d: %v; chatd-root has ended: %t", from, err, s.isOver())
		}
		whole(t, opt, made)
	}
	expect.True(t, met != 0 && refused != 0, "%d system calls failed, and %d calls", met, refused)
	t.Logf("%d system calls failed, and %d calls", met, refused)
	afterDescriptors(t, s.daemon)
}
