package enforce

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/masks"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// enforcer is the worker: the sessions that it keeps, and what they share.
type enforcer struct {
	dir      string
	errs     io.Writer
	masks    masks.Sources
	watch    *watch
	rechecks chan chat.ID

	mu       sync.Mutex
	trees    pathclass.Cache
	noMasks  bool // tests: sessions get no masks
	noSwap   bool // tests: as a kernel before 6.5
	sessions map[chat.ID]*session
	queued   map[chat.ID]bool
	ordered  time.Time // when the last order came
}

func newEnforcer(dir string, perm, names int, errs io.Writer) (*enforcer, error) {
	k := &enforcer{dir: dir, errs: errs, sessions: map[chat.ID]*session{}, queued: map[chat.ID]bool{},
		rechecks: make(chan chat.ID, 1024)}
	var err error
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the enforcer's directory: %w", err)
	}
	if k.masks, err = makeMasks(dir); err != nil {
		return nil, err
	}
	k.watch = newWatch(perm, names)
	k.watch.procFD, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open /proc/self/fd: %w", err)
	}
	k.watch.dir, k.watch.recheck, k.watch.end = filepath.Join(dir, "sessions"), k.queueRecheck, k.end
	return k, nil
}

// serve accepts orders, one on each connection. Only root can enter the socket's directory.
func (e *enforcer) serve(l net.Listener) error {
	go func() {
		for range time.Tick(10 * time.Second) {
			e.sweep()
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("cannot take orders: %w", err)
		}
		go e.answer(conn)
	}
}

func (e *enforcer) answer(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(orders.Timeout))
	var a orders.Answer
	e.recordOrder()
	o, err := orders.Read(conn)
	if err == nil && o.Verb == orders.Lend {
		e.lend(conn)
		return
	}
	if err == nil {
		sys.Failpoint(o.Verb + ".read")
		a, err = e.execute(o)
		sys.Failpoint(o.Verb + ".done")
	}
	if err != nil {
		a.Error = err.Error()
		a.Error = a.Error[:min(len(a.Error), orders.MaxAnswer/4)]
	}
	if err := json.NewEncoder(conn).Encode(a); err != nil {
		fmt.Fprintf(e.errs, "chatd-enforce: cannot answer: %v\n", err)
	}
}

// lend sends the groups, and tells by the end of the connection when this worker ends.
func (e *enforcer) lend(conn net.Conn) {
	if err := orders.SendGroups(conn.(*net.UnixConn), e.watch.permFD, e.watch.namesFD); err != nil {
		fmt.Fprintf(e.errs, "chatd-enforce: cannot lend the groups: %v\n", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	_, _ = conn.Read(make([]byte, 1))
}

func (e *enforcer) recordOrder() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ordered = time.Now()
}

// idleTime is how long an enforcer that chatd started goes on without a session or an order.
const idleTime = 10 * time.Second

// awaitIdle returns after [idleTime] without a session or an order. chatd starts another enforcer
// for the next session with rules. It probes first, and the probe counts as an order.
func (e *enforcer) awaitIdle() {
	e.recordOrder()
	for idle := false; !idle; {
		time.Sleep(idleTime / 4)
		e.mu.Lock()
		idle = len(e.sessions) == 0 && time.Since(e.ordered) > idleTime
		e.mu.Unlock()
	}
}

func (e *enforcer) execute(o orders.Order) (orders.Answer, error) {
	switch o.Verb {
	case orders.Probe:
		return e.probe(o)
	case orders.Apply:
		return e.applyRules(o)
	case orders.Drop:
		e.drop(o.Chat)
		return orders.Answer{}, nil
	case orders.Why:
		return e.why(o)
	case orders.Refused:
		return e.watch.refused.take(), nil
	}
	return orders.Answer{}, chat.Invalid("cannot obey %s: want hold, drop, lend, probe, refused or why",
		chat.Quote(o.Verb))
}

// probe reports whether the rules of the order's session are enforced. Without a session it reports
// that the enforcer runs.
func (e *enforcer) probe(o orders.Order) (orders.Answer, error) {
	if o.Chat == "" {
		return orders.Answer{Later: "fanotify"}, nil
	}
	s := e.named(o.Chat)
	if s == nil || s.initProc != initProcessOf(o) || s.answer.Load() == nil || s.ended() {
		return orders.Answer{}, fmt.Errorf("nobody keeps process %d of the chat: %w", o.PID, chat.ErrNotFound)
	}
	return *s.answer.Load(), nil
}

// applyRules applies rules to a session. If the first rules fail, hold forgets the session. If later
// rules fail, the session keeps the walls of both.
func (e *enforcer) applyRules(o orders.Order) (orders.Answer, error) {
	s, known, err := e.session(o)
	if err != nil {
		return orders.Answer{}, err
	}
	if err := e.apply(s, &o); err != nil {
		if !known {
			e.forget(s)
		}
		return orders.Answer{}, err
	}
	return *s.answer.Load(), nil
}

// apply applies the rules of an order and saves the session. A nil order applies the present rules
// again; they are read under the lock.
func (e *enforcer) apply(s *session, o *orders.Order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("nobody keeps process %d of the chat any more: %w", s.initProc.pid,
			chat.ErrNotFound)
	}
	if o == nil {
		o = &s.order
	}
	if err := sys.InMountNamespace(s.ns, func() error { return s.apply(*o) }); err != nil {
		return err
	}
	return e.save(s)
}

// session returns the session of an order. It drops any other session of the same chat.
func (e *enforcer) session(o orders.Order) (s *session, known bool, err error) {
	if _, err := chat.ParseID(string(o.Chat)); err != nil {
		return nil, false, err
	}
	if s = e.named(o.Chat); s != nil && s.initProc == initProcessOf(o) && !s.ended() {
		return s, true, nil
	}
	if s, err = e.openSession(o); err != nil {
		return nil, false, err
	}
	for {
		e.drop(o.Chat)
		e.mu.Lock()
		free := e.sessions[o.Chat] == nil
		if free {
			e.sessions[o.Chat] = s
		}
		e.mu.Unlock()
		if free {
			return s, false, nil
		}
	}
}

// named returns the session of a chat; nil if there is none.
func (e *enforcer) named(id chat.ID) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id]
}

func (e *enforcer) drop(id chat.ID) {
	if s := e.named(id); s != nil {
		e.forget(s)
	}
}

// sweep forgets sessions that have ended.
func (e *enforcer) sweep() {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.sessions))
	e.mu.Unlock()
	for _, s := range all {
		if s.ended() {
			e.forget(s)
		}
	}
}

// queueRecheck queues another walk of a session in which something denied was made or moved. It is
// called under the watch's lock and does not wait.
func (e *enforcer) queueRecheck(id chat.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queued[id] {
		return
	}
	select {
	case e.rechecks <- id:
		e.queued[id] = true
	default: // the queue is full; opens of the file are still refused
	}
}

// recheckQueued masks files that were made later. It sleeps after each walk, so that a chat that
// makes many such files takes a bounded part of its time.
func (e *enforcer) recheckQueued() {
	for id := range e.rechecks {
		e.mu.Lock()
		delete(e.queued, id)
		s := e.sessions[id]
		e.mu.Unlock()
		if s == nil || s.ended() {
			continue
		}
		began := time.Now()
		if err := e.apply(s, nil); err != nil {
			e.end(s, err)
		}
		time.Sleep(min(5*time.Since(began), time.Second))
	}
}

// end kills a session whose rules can no longer be enforced.
func (e *enforcer) end(s *session, why error) {
	if s.ended() {
		return
	}
	fmt.Fprintf(e.errs, "chatd-enforce: ending the session of chat %s: its file rules cannot be kept: %v\n",
		s.initProc.chat, why)
	if err := s.kill(); err != nil {
		fmt.Fprintf(e.errs, "chatd-enforce: cannot end the session of chat %s: %v\n", s.initProc.chat, err)
	}
}
