package enforce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// question is an open that waits for its answer.
type question struct {
	fd   int // what it would be open on
	open bool
}

// maxQuestions bounds how many questions are held, in all: each is a descriptor. Beyond that
// they wait in the kernel.
const maxQuestions = 16 << 10

// run answers for ever. An error means that opens may wait unanswered: the program ends
// then, and the one that holds the groups starts another.
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
			continue // nothing, or the kernel could not open the file for us, and has refused its open
		}
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

// await returns when there is something to read. It parks the goroutine and not its
// thread: who answers goes on at once.
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

// assignMount has the opens by a mount be a session's, or nobody's; before it is marked.
func (w *watch) assignMount(id uint64, s *watchedSession) {
	w.asking.Lock()
	defer w.asking.Unlock()
	if s == nil {
		delete(w.byMount, id)
	} else {
		w.byMount[id] = s
	}
}

// ask puts a question to the session that it is of. Each session answers its own, one
// after the other: a chat that asks without end, or holds the directories that are waited
// for, holds up itself alone.
func (w *watch) ask(q question) error {
	st, err := statFD(q.fd)
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

// answerAll answers what a session asks, until it asks nothing.
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

// decide answers one question: first come the names. The kernel queues an event about a
// name while it holds the directory.
func (w *watch) decide(s *watchedSession, q question) error {
	at, known := location{}, false
	if q.open && !w.blind {
		at, known = w.locate(s, q.fd)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	allow := !q.open || w.blind
	if known && w.sessions[s.session.initProc.chat] == s && w.readNames() == nil && w.processAll(s) == nil && !s.backlog.overflowed {
		began := time.Now()
		allow = s.allows(q.fd, at)
		s.opens.spend(time.Now(), time.Since(began))
	}
	if !allow {
		w.recordRefused(s, q.fd)
	}
	return w.answer(q, allow)
}

// answer lets an open through or refuses it.
func (w *watch) answer(q question, allow bool) error {
	verdict := uint32(unix.FAN_DENY)
	if allow {
		verdict = unix.FAN_ALLOW
	}
	_, err := unix.Write(w.permFD, response(q.fd, verdict))
	unix.Close(q.fd)
	<-w.room
	if err != nil && err != unix.ENOENT { // ENOENT: who asked was killed meanwhile
		return fmt.Errorf("cannot answer: %w", err)
	}
	return nil
}

func response(fd int, verdict uint32) []byte {
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(fd)), verdict)
}

// treeFor is the tree that p lies in, with descriptors of the caller's own: the session may be
// let go of meanwhile.
func (w *watch) treeFor(s *watchedSession, p string) (t watchedTree, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sessions[s.session.initProc.chat] != s {
		return t, false
	}
	if t, ok = s.treeOf(p); !ok {
		return t, false
	}
	fd, err := unix.FcntlInt(uintptr(t.tree), unix.F_DUPFD_CLOEXEC, 0)
	t.fd = fd
	return t, err == nil
}

// denyLost refuses the opens about which a worker was asked that has ended: the kernel
// tells nobody else of them, and they would wait for ever. It knows them by the number that
// their descriptor had there.
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
