package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/stream"
)

// Main is the mode "mind" of chatd-shim; it returns the exit code.
func Main() int {
	ready := os.NewFile(plan.FDReady, "ready")
	m, err := start()
	said := plan.SupervisorReady{PID: m.pid}
	if err != nil {
		said = plan.SupervisorReady{Error: err.Error()}
	}
	if err := errors.Join(err, json.NewEncoder(ready).Encode(said), ready.Close()); err != nil {
		return 1
	}
	if err := m.supervise(); err != nil {
		return 1
	}
	return 0
}

// supervisor is the state of one run's supervisor.
type supervisor struct {
	spec           plan.SupervisorSpec
	pid            int
	orders, stdin  *os.File
	outP, errP     *os.File
	out, errs      *stream.File
	end, kill      *os.File
	moved          chan struct{}
	exited, reaped chan struct{}
	status         unix.WaitStatus
	late           bool // the command outlived its deadline
}

// start starts the command and then drops root; only the descriptors stay.
func start() (*supervisor, error) {
	m := &supervisor{moved: make(chan struct{}), exited: make(chan struct{}), reaped: make(chan struct{})}
	f := os.NewFile(plan.FDSpec, "spec")
	spec, err := plan.ReadSupervisorSpec(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return m, err
	}
	m.spec = spec
	// This process reaps the command's orphans: a zombie would keep a pid namespace from ending.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return m, fmt.Errorf("cannot adopt the orphans of a run: %w", err)
	}
	// The inherited descriptors are this process's alone: os.StartProcess passes only its list.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return m, fmt.Errorf("cannot keep the supervisor's descriptors: %w", err)
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	for i := range spec.Files {
		files = append(files, os.NewFile(uintptr(plan.FDFirst+i), "command"))
	}
	p, err := os.StartProcess(spec.Path, spec.Argv,
		&os.ProcAttr{Dir: "/", Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return m, fmt.Errorf("cannot start the command: %w", err)
	}
	m.pid = p.Pid
	err = errors.Join(closeOwnStdio(files[3:]), p.Release(), dropRoot(spec.UID))
	if err == nil {
		err = m.takeFiles()
	}
	if err != nil { // the run has its walls, but would have no supervisor
		return m, errors.Join(err, unix.Kill(m.pid, unix.SIGKILL))
	}
	return m, nil
}

// closeOwnStdio closes this process's copies of the command's streams, without which no pipe
// would end.
func closeOwnStdio(files []*os.File) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot let go of the run's streams: %w", err)
	}
	errs := []error{}
	for fd := range 3 {
		errs = append(errs, unix.Dup3(int(null.Fd()), fd, 0))
	}
	for _, f := range append(files, null) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// dropRoot changes to uid irrevocably. Without a uid 0 among its ids the process has no
// capabilities (capabilities(7)), and the change makes it undumpable and so untraceable (prctl(2)).
func dropRoot(uid uint32) error {
	err := syscall.Setgroups(nil)
	if err == nil {
		err = syscall.Setresgid(int(uid), int(uid), int(uid))
	}
	if err == nil {
		err = syscall.Setresuid(int(uid), int(uid), int(uid))
	}
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err == nil && (os.Getuid() == 0 || os.Geteuid() == 0 || syscall.Setuid(0) == nil) {
		err = errors.New("it is root again")
	}
	if err != nil {
		return fmt.Errorf("cannot become uid %d: %w", uid, err)
	}
	return nil
}

func (m *supervisor) takeFiles() error {
	var errs []error
	take := func(fd int, name string) *os.File {
		errs = append(errs, unix.SetNonblock(fd, true)) // so that the runtime's poller waits for it
		return os.NewFile(uintptr(fd), name)
	}
	m.orders = take(plan.FDOrders, "orders")
	m.stdin = take(plan.FDStdin, "stdin")
	if !m.spec.OpenStdin {
		errs = append(errs, m.stdin.Close())
	}
	m.outP, m.errP = take(plan.FDStdoutPipe, "stdout"), take(plan.FDStderrPipe, "stderr")
	for fd, to := range map[uintptr]**stream.File{plan.FDStdoutFile: &m.out, plan.FDStderrFile: &m.errs} {
		f := os.NewFile(fd, "output")
		*to = stream.NewFile(f, m.spec.OutputMax)
		(*to).GrowIf(func() bool { return stream.HasSpace(f, 8) })
	}
	m.end, m.kill = os.NewFile(plan.FDEnd, "end"), os.NewFile(plan.FDKill, "kill")
	return errors.Join(errs...)
}

// supervise returns when the run has ended and everything about it is written down.
func (m *supervisor) supervise() error {
	m.spec.Deadline = steady(m.spec.Deadline)
	go m.collect()
	go m.obey()
	var copies sync.WaitGroup
	for from, to := range map[*os.File]*stream.File{m.outP: m.out, m.errP: m.errs} {
		copies.Go(func() { // it ends with the stream, or by its deadline
			_, _ = io.CopyBuffer(to, onlyReader{from}, make([]byte, stream.PieceSize))
		})
	}
	timedOut := m.await()
	deadline := time.Now().Add(stream.DrainTime)
	err := errors.Join(m.outP.SetReadDeadline(deadline), m.errP.SetReadDeadline(deadline))
	copies.Wait()
	tail, terr := m.out.Tail(plan.MaxTail)
	line, jerr := json.Marshal(plan.SupervisorEnd{
		Status: uint32(m.status), At: time.Now().UTC(), TimedOut: timedOut, Tail: tail,
	})
	_, werr := m.end.Write(append(line, '\n'))
	return errors.Join(err, terr, jerr, werr)
}

// steady is the same moment by the monotonic clock, which nobody sets, as it was read from a file.
func steady(at time.Time) time.Time { return time.Now().Add(time.Until(at)) }

// onlyReader hides a file's other methods: io.Copy would copy from the pipe in the kernel and
// bypass the ring.
type onlyReader struct{ io.Reader }

// await waits for the command or for Spec.Last, and then kills the leaf until all its processes
// are reaped.
func (m *supervisor) await() (timedOut bool) {
	last := time.NewTimer(time.Until(m.spec.Last))
	defer last.Stop()
	select {
	case <-m.exited:
	case <-last.C:
	}
	<-m.moved
	for {
		_, _ = m.kill.WriteAt([]byte("1"), 0) // fails if the leaf, with its processes, is gone
		select {
		case <-m.reaped:
			return m.late
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// collect reaps every child: the command, and the orphans that its end leaves.
func (m *supervisor) collect() {
	defer close(m.reaped)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return
		case pid == m.pid:
			m.status, m.late = status, !time.Now().Before(m.spec.Deadline)
			close(m.exited)
		}
	}
}

// obey reads orders as long as this process lives.
func (m *supervisor) obey() {
	var order [1]byte
	moved := false
	for {
		if _, err := m.orders.Read(order[:]); err != nil {
			return
		}
		switch {
		case order[0] == plan.OrderGo && !moved:
			moved = true
			close(m.moved)
		case order[0] == plan.OrderClose:
			_ = m.stdin.Close() // it may be closed already
		}
	}
}
