package enforce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// question is an open that waits for its answer.
type question struct {
	fd   int // what it would be open on
	open bool
}

// maxQuestions bounds the unanswered questions of all sessions, since each holds a descriptor.
// Further opens wait in the kernel.
const maxQuestions = 16 << 10

// run answers opens until an error. Opens may then wait unanswered, so the worker ends and the
// holder starts another.
func (w *watch) run() error {
	go func() { w.fail(w.listen()) }()
	go func() { w.fail(w.processBacklogs()) }()
	go func() { w.fail(w.readOpens()) }()
	return <-w.failed
}

func (w *watch) fail(err error) {
	select {
	case w.failed <- err:
	default: // the first is enough
	}
}

// readOpens hands each question to its session.
func (w *watch) readOpens() error {
	buf := make([]byte, 4<<10)
	for {
		if err := await(w.perm); err != nil {
			return err
		}
		n, err := unix.Read(w.permFD, buf)
		if err != nil {
			continue // no event, or the kernel could not open the file here and refused the open
		}
		sys.Failpoint("open.read")
		events, err := parseEvents(buf[:n])
		for _, e := range events {
			if e.fd >= 0 {
				w.room <- struct{}{}
				err = errors.Join(err, w.ask(question{e.fd, e.mask&unix.FAN_OPEN_PERM != 0}))
			}
		}
		if err != nil {
			return err
		}
	}
}

// await returns when f is readable. It parks the goroutine and not its thread, so that answers are
// not delayed.
func await(f *os.File) error {
	conn, err := f.SyscallConn()
	if err == nil {
		err = conn.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}
	if err != nil {
		return fmt.Errorf("cannot wait for events: %w", err)
	}
	return nil
}

// assignMount assigns the opens through a mount to a session, or to none if s is nil. It is called
// before the mount is marked.
func (w *watch) assignMount(id uint64, s *watchedSession) {
	w.asking.Lock()
	defer w.asking.Unlock()
	if s == nil {
		delete(w.byMount, id)
	} else {
		w.byMount[id] = s
	}
}

// ask queues a question for its session. Each session's questions are answered one after the other
// by a goroutine of its own. So a chat that opens files endlessly, or keeps a directory locked,
// delays only itself.
func (w *watch) ask(q question) error {
	st, err := sys.StatFD(q.fd)
	w.asking.Lock()
	defer w.asking.Unlock()
	s := w.byMount[st.Mnt_id]
	if err != nil || s == nil {
		return w.answer(q, !q.open)
	}
	s.questions = append(s.questions, q)
	if len(s.questions) == 1 {
		go w.answerAll(s)
	}
	return nil
}

// answerAll answers a session's questions until none waits.
func (w *watch) answerAll(s *watchedSession) {
	for {
		time.Sleep(s.opens.wait(time.Now()))
		w.asking.Lock()
		q := s.questions[0]
		w.asking.Unlock()
		err := w.decide(s, q)
		w.asking.Lock()
		s.questions = s.questions[1:]
		last := len(s.questions) == 0
		if last {
			s.questions = nil
		}
		w.asking.Unlock()
		if err != nil {
			w.fail(err)
			return
		}
		if last {
			return
		}
	}
}

// decide answers one question, after the session's earlier name events. The kernel queues a name
// event under the directory's lock, for which [watch.locate] waits.
func (w *watch) decide(s *watchedSession, q question) error {
	at, known := location{}, false
	if q.open && !w.blind && !w.isClosed(s, q.fd) {
		at, known = w.locate(s, q.fd)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	allow := !q.open || w.blind
	if known && w.sessions[s.session.initProc.chat] == s && w.readNames() == nil && w.processAll(s) == nil &&
		!s.backlog.overflowed {
		began := time.Now()
		allow = s.allows(q.fd, at)
		s.opens.spend(time.Now(), time.Since(began))
	}
	if !allow {
		w.recordRefused(s, q.fd)
	}
	sys.Failpoint("open.checked")
	return w.answer(q, allow)
}

// isClosed reports whether what is known already refuses an open of fd's file: earlier events can
// only close more.
func (w *watch) isClosed(s *watchedSession, fd int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, err := pathOf(fd)
	t, ok := s.treeOf(p)
	return err != nil || !ok || s.classOf(t, location{path: p}, fd) == filerules.Closed
}

// answer allows or refuses an open.
func (w *watch) answer(q question, allow bool) error {
	verdict := uint32(unix.FAN_DENY)
	if allow {
		verdict = unix.FAN_ALLOW
	}
	_, err := unix.Write(w.permFD, response(q.fd, verdict))
	sys.Failpoint("open.answered")
	unix.Close(q.fd)
	<-w.room
	if err != nil && err != unix.ENOENT { // ENOENT: the process was killed meanwhile
		return fmt.Errorf("cannot answer: %w", err)
	}
	return nil
}

func response(fd int, verdict uint32) []byte {
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(fd)), verdict)
}

// treeFor returns the tree that contains p. The caller gets a descriptor of its own, because the
// session may be released meanwhile.
func (w *watch) treeFor(s *watchedSession, p string) (t watchedTree, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[s.session.initProc.chat] != s {
		return t, false
	}
	if t, ok = s.treeOf(p); !ok {
		return t, false
	}
	fd, err := unix.FcntlInt(uintptr(t.Tree), unix.F_DUPFD_CLOEXEC, 0)
	t.fd = fd
	return t, err == nil
}

// denyLost refuses the opens that an earlier worker had read and not answered. The kernel reports
// them only once, so they would wait forever. The kernel identifies them by their descriptor in
// that worker, so denyLost tries every descriptor number.
func denyLost(perm int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot answer for the worker before: %w", err)
	}
	for fd := range int(min(limit.Cur, 1<<20)) {
		if _, err := unix.Write(perm, response(fd, unix.FAN_DENY)); err != nil && err != unix.ENOENT {
			return fmt.Errorf("cannot answer for the worker before: %w", err)
		}
	}
	return nil
}
