package shims

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
)

// maxFiles bounds what one message may carry (SCM_MAX_FD is 253).
const maxFiles = 64

// settleTime is how long bubblewrap's outer process may run after the message that the session
// is up. It ends with the command that started the terminal.
const settleTime = 2 * time.Second

// runEnter is the first process of a session that systemd starts: it runs as the
// chat, behind PAM, before any code of the chat. It moves to the unit's leaf,
// checks that the private directories are mounted, starts bubblewrap, tells systemd
// that the unit is up, and hands the unit over to the session's own pid 1. Its
// stdin is the socket of package systemd's handshake.
func runEnter(args []string, errs io.Writer) int {
	if len(args) > 0 {
		return fail(errs, chat.Invalid("cannot use argument %s", chat.Quote(args[0])))
	}
	if err := enterSession(); err != nil {
		err = fmt.Errorf("cannot enter the session: %w", err)
		_, _ = unix.Write(0, []byte(err.Error()))
		return fail(errs, err)
	}
	return 0
}

func enterSession() error {
	// No other process of this uid may trace the one that holds the handshake's socket.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot hide from the chat's other processes: %w", err)
	}
	if _, err := unix.Write(0, []byte("here")); err != nil {
		return fmt.Errorf("cannot reach chatd on stdin: %w", err)
	}
	files, err := receiveFiles()
	if err != nil {
		return err
	}
	entry, err := readEntry(files[0])
	if err != nil {
		return err
	}
	own, err := ownCgroup()
	if err != nil {
		return err
	}
	if err := moveToLeaf(own); err != nil {
		return err
	}
	if err := checkMounts(entry); err != nil {
		return err
	}
	bwrap, err := startBwrap(entry, files[1:])
	if err != nil {
		return err
	}
	if err := notify("READY=1\nSTATUS=the session is starting", nil); err != nil {
		return err
	}
	return handOver(bwrap)
}

// receiveFiles waits for the one message that carries descriptors.
func receiveFiles() ([]*os.File, error) {
	buf, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := unix.Recvmsg(0, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || string(buf[:n]) != "files" || flags&unix.MSG_CTRUNC != 0 {
		return nil, fmt.Errorf("cannot receive the files: got %q: %w", buf[:max(n, 0)],
			errors.Join(err, chat.ErrInvalid))
	}
	fds, err := sys.Rights(oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("cannot receive the files: %w", err)
	}
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "received"))
	}
	if len(files) < 3 {
		return nil, chat.Invalid("cannot receive the files: %d came", len(files))
	}
	return files, nil
}

func readEntry(f *os.File) (plan.Entry, error) {
	var e plan.Entry
	text, err := io.ReadAll(io.NewSectionReader(f, 0, plan.MaxEntry))
	if err == nil {
		err = chat.Strict(text, &e)
	}
	if err != nil || len(e.Argv) == 0 {
		return e, fmt.Errorf("cannot read the entry: %w", errors.Join(err, chat.ErrInvalid))
	}
	return e, f.Close()
}

// startBwrap runs bubblewrap. Its stdout and stderr are the last two files and not the journal's
// socket, which root made.
func startBwrap(e plan.Entry, files []*os.File) (*exec.Cmd, error) {
	n := len(files) - 2
	cmd := exec.Command(e.Argv[0], e.Argv[1:]...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.Stdout, cmd.Stderr = files[n], files[n+1]
	if e.Stdin {
		n--
		cmd.Stdin = files[n]
	}
	cmd.ExtraFiles = files[:n]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	for _, f := range files {
		f.Close()
	}
	return cmd, nil
}

// handOver waits for chatd's message that the session is up, with the pid of its init process.
// If chatd ends before that, this process ends, and the unit with it.
func handOver(bwrap *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- bwrap.Wait() }()
	buf := make([]byte, 64)
	n, err := unix.Read(0, buf)
	for err == unix.EINTR {
		n, err = unix.Read(0, buf)
	}
	word, number, _ := strings.Cut(string(buf[:max(n, 0)]), " ")
	pid, perr := strconv.Atoi(number)
	if n == 0 && over(ended) {
		return nil // a probe: it has nothing to hand over
	}
	if err != nil || word != "main" || perr != nil {
		return fmt.Errorf("cannot hand the unit over: chatd went away: %w", errors.Join(err, chat.ErrInvalid))
	}
	select {
	case <-ended: // pid 1 of the session is now a child of systemd, which will see it end
	case <-time.After(settleTime):
	}
	if err := notifyMain(pid); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "the session of uid %d is up; its pid 1 is process %d\n", os.Getuid(), pid)
	_, err = unix.Write(0, []byte("settled"))
	return err
}

func over(ended <-chan error) bool {
	select {
	case <-ended:
		return true
	case <-time.After(settleTime / 4):
		return false
	}
}

// checkMounts verifies that PAM mounted the chat's private directories. Without them the session
// would share the host's /tmp, and nothing else would differ.
func checkMounts(e plan.Entry) error {
	for _, m := range e.Own {
		var st unix.Stat_t
		if err := unix.Stat(m.Path, &st); err != nil {
			return fmt.Errorf("cannot look at %s: %w", m.Path, err)
		}
		if st.Dev != m.Dev || st.Ino != m.Ino {
			return fmt.Errorf("%s is not the chat's own: is pam_namespace.so in the PAM service, and does "+
				"/etc/security/namespace.d/chatd.conf name the directories of chatd's state: %w", m.Path,
				chat.ErrUnsupported)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/dev/shm", &st); err != nil {
		return fmt.Errorf("cannot look at /dev/shm: %w", err)
	}
	if e.HostShm != 0 && st.Dev == e.HostShm {
		return fmt.Errorf("/dev/shm is the host's: /etc/security/namespace.d/chatd.conf has to give it to each chat: %w", chat.ErrUnsupported)
	}
	return nil
}

// notifyTime bounds how long systemd may take to read its messages.
const notifyTime = 10 * time.Second

// notify sends systemd the state of this unit, with files (sd_notify(3)).
func notify(state string, files []int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return fmt.Errorf("cannot tell systemd %q: NOTIFY_SOCKET is not set: %w", state, chat.ErrUnsupported)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		var rights []byte
		if len(files) > 0 {
			rights = unix.UnixRights(files...)
		}
		err = errors.Join(unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: path},
			unix.MSG_NOSIGNAL), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("cannot tell systemd %q: %w", state, err)
	}
	return nil
}

// notifyMain makes pid the unit's main process, and returns when systemd has read the message.
// systemd attributes the message of a process that has ended to no unit.
func notifyMain(pid int) error {
	if err := notify("MAINPID="+strconv.Itoa(pid)+"\nSTATUS=the session is up", nil); err != nil {
		return err
	}
	return notifyBarrier()
}

// notifyBarrier is sd_notify_barrier(3): systemd closes the pipe that it receives once it has
// read all earlier messages.
func notifyBarrier() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("cannot wait for systemd: %w", err)
	}
	defer unix.Close(p[0])
	err := errors.Join(notify("BARRIER=1", []int{p[1]}), unix.Close(p[1]))
	if err != nil {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(p[0])}}
	for end := time.Now().Add(notifyTime); ; {
		n, err := unix.Poll(fds, int(time.Until(end).Milliseconds()))
		if n == 1 {
			return nil
		}
		if err != nil && err != unix.EINTR || time.Now().After(end) {
			return fmt.Errorf("cannot wait for systemd: %w", errors.Join(err, chat.ErrBusy))
		}
	}
}
