package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/broker"
)

// front is the process that reads callers' input. run restarts it when it ends.
type front struct {
	log      *slog.Logger
	opt      broker.ServerOptions
	program  *os.File     // kept open, so that each front runs the program of this daemon's start
	unlisten func() error // once
	socket   *os.File     // a copy, for the front
	user     identity
	bound    func(pid int) error // gives the process a cgroup of its own
	report   func(error)         // a front that does not answer; nil once one does

	mu       sync.Mutex
	settings broker.Settings
	now      *broker.Server // of the front that runs; nil between two
}

// newFront takes l.
func newFront(
	program string, l net.Listener, log *slog.Logger, opt broker.ServerOptions, user, state string,
	bound func(pid int) error, report func(error),
) (*front, error) {
	u, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("cannot hand over a listener that is %T", l)
	}
	p, err := os.Open(program)
	if err != nil {
		return nil, fmt.Errorf("cannot use the program of the front: %w: %w", err, chat.ErrUnsupported)
	}
	socket, err := u.File()
	if err != nil {
		return nil, fmt.Errorf("cannot hand over the socket: %w", errors.Join(err, p.Close()))
	}
	return &front{log: log, opt: opt, program: p, unlisten: sync.OnceValue(l.Close),
		socket: socket, user: identityOf(log, "the front", user, state), bound: bound, report: report}, nil
}

// change edits what each front is told at its start, and tells the one that runs.
func (f *front) change(edit func(*broker.Settings)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit(&f.settings)
	if f.now == nil {
		return
	}
	if err := f.now.Tell(f.settings); err != nil {
		f.log.Warn("the front does not hear its settings", "why", err)
	}
}

// chatd-root restarts a front that ends, with growing delays if it ends soon. It gives up after
// some tries if no front answered a caller: then no caller is the cause, and an operator has to
// know.
const (
	frontTries   = 6
	frontPause   = 100 * time.Millisecond
	maxPause     = 5 * time.Second
	frontStarted = time.Second // a front that runs this long has started well
)

// run keeps a front until ctx ends, and then lets it finish what it answers. It returns nil
// when that was told to end.
func (f *front) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, f.close()) }()
	for tries, pause := 1, frontPause; ; tries, pause = tries+1, min(2*pause, maxPause) {
		began := time.Now()
		answered, err := f.once(ctx)
		switch {
		case ctx.Err() != nil:
			if err != nil {
				f.log.Warn("the front did not end well", "why", err)
			}
			return nil
		case time.Since(began) > frontStarted:
			tries, pause = 1, frontPause
		case answered:
			tries = 1
		case tries == frontTries:
			return fmt.Errorf("cannot keep a front: it ended %d times, the last time: %w", tries, err)
		}
		f.log.Error("the front ended and is started again; what it answered is cut off", "why", err, "after",
			time.Since(began).Round(time.Millisecond))
		if chat.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func (f *front) close() error {
	return errors.Join(f.unlisten(), f.socket.Close(), f.program.Close())
}

// once starts a front and waits for its end; answered is whether it answered a caller.
func (f *front) once(ctx context.Context) (answered bool, err error) {
	ours, theirs, err := broker.Pair()
	if err != nil {
		return false, err
	}
	s, err := broker.NewServer(ours, f.opt)
	if err != nil {
		return false, errors.Join(err, theirs.Close())
	}
	cmd, exited, err := f.start(ctx, theirs)
	if err = errors.Join(err, theirs.Close()); err != nil {
		return false, errors.Join(err, s.Close())
	}
	f.introduced(s)
	if err := s.Tell(f.current()); err != nil {
		return false, errors.Join(err, s.Close(), <-exited)
	}
	served := make(chan error, 1)
	go func() {
		err := s.Serve(context.WithoutCancel(ctx))
		// A front that violates the protocol loses its connection, and ends.
		served <- errors.Join(err, s.Close())
	}()
	watching, unwatch := context.WithCancel(ctx)
	go f.watch(watching, s, cmd.Process)
	err = errors.Join(<-exited, <-served)
	unwatch()
	f.introduced(nil)
	if ctx.Err() != nil {
		err = errors.Join(err, s.Wait(frontTimeout))
	}
	return s.Answers(), err
}

// A front that runs is told its settings every frontEvery. One that did not take them at frontMisses
// looks in a row is hung or stopped, and is killed: run starts another, for the same listener. One
// look is too few: chatd-root may have been stopped itself.
const (
	frontEvery  = 5 * time.Second
	frontMisses = 6
)

// watch kills a front that does not answer.
func (f *front) watch(ctx context.Context, s *broker.Server, p *os.Process) {
	for answered, misses := false, 0; ; {
		if _ = chat.Sleep(ctx, frontEvery); ctx.Err() != nil {
			return
		}
		switch misses++; {
		case s.Took():
			if misses = 0; !answered {
				answered = true
				f.report(nil)
			}
		case misses == frontMisses:
			f.report(errors.New("it did not answer, and was killed: a new one answers the same socket"))
			_ = p.Kill() // one that has ended needs none
			return
		}
		if err := s.Tell(f.current()); err != nil {
			return // it has ended
		}
	}
}

func (f *front) current() broker.Settings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.settings
}

// introduced: s is of the front that runs, and is told what changes.
func (f *front) introduced(s *broker.Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = s
}

// start starts the process. It dies with this one (PR_SET_PDEATHSIG of prctl(2)), which the
// kernel takes for the end of the thread that started it: that waits here.
func (f *front) start(ctx context.Context, control *os.File) (cmd *exec.Cmd, exited chan error, err error) {
	// By descriptor: the directory of the program may be root's alone.
	cmd = exec.Command("/proc/self/fd/5")
	cmd.Args = []string{"chatd-front", "front"}
	cmd.ExtraFiles = []*os.File{f.socket, control, f.program}
	cmd.Env, cmd.Dir, cmd.Stderr = frontEnv(), "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: f.user.uid, Gid: f.user.gid},
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Setpgid:    true, // an interrupt at a terminal is for chatd-root, which tells the front
		Pdeathsig:  syscall.SIGKILL,
	}
	started, exited := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		// Not later: once it is waited for its pid may be another's.
		if err := f.bound(cmd.Process.Pid); err != nil { // RLIMIT_DATA holds it then
			f.log.Warn("the front has no cgroup of its own", "why", err)
		}
		started <- nil
		stop := context.AfterFunc(ctx, func() { f.end(cmd) })
		exited <- cmd.Wait()
		stop()
	}()
	if err := <-started; err != nil {
		return nil, nil, fmt.Errorf("cannot start the front: %w", err)
	}
	return cmd, exited, nil
}

// frontEnv is what a front may know of this process's environment.
func frontEnv() (env []string) {
	for _, name := range []string{"JOURNAL_STREAM", "TZ", "GOTRACEBACK"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, "GOMAXPROCS="+fmt.Sprint(runtime.GOMAXPROCS(0)))
}

// end asks a front to finish, and kills one that takes too long. It removes the socket first, so
// that no new connection waits in vain.
func (f *front) end(cmd *exec.Cmd) {
	if err := f.unlisten(); err != nil {
		f.log.Warn("cannot close the socket", "why", err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // one that has ended is waited for already
	grace := shutdownGrace + runsGrace + frontTimeout
	time.AfterFunc(grace, func() {
		if cmd.Process.Kill() == nil {
			f.log.Warn("the front was killed: it did not end", "after", grace)
		}
	})
}

// frontTimeout is how long a front may clean up after its grace.
const frontTimeout = 7 * time.Second
