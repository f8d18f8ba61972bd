package enforce

import (
	"encoding/json"
	"errors"
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
)

// keeper is the worker: the sessions that it keeps, and what they share.
type keeper struct {
	dir    string
	errs   io.Writer
	masks  maskPair
	procFD int
	watch  *watch
	again  chan chat.ID

	mu       sync.Mutex
	trees    treeCache
	bare     bool // tests: sessions are not covered
	noSwap   bool // tests: as a kernel before 6.5
	sessions map[chat.ID]*kept
	asked    map[chat.ID]bool
	ordered  time.Time // when the last order came
}

func newKeeper(dir string, perm, names int, errs io.Writer) (*keeper, error) {
	k := &keeper{dir: dir, errs: errs, sessions: map[chat.ID]*kept{}, asked: map[chat.ID]bool{}, again: make(chan chat.ID, 1024)}
	var err error
	if err := os.MkdirAll(filepath.Join(dir, "sessions"), 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the keeper's directory: %w", err)
	}
	if k.masks, err = makeMasks(dir); err != nil {
		return nil, err
	}
	if k.procFD, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("cannot open /proc/self/fd: %w", err)
	}
	k.watch = newWatch(perm, names)
	k.watch.dir, k.watch.again, k.watch.end = filepath.Join(dir, "sessions"), k.askAgain, k.end
	return k, nil
}

// serve takes orders, one for a connection. The socket is in a directory of root's.
func (k *keeper) serve(l net.Listener) error {
	go func() {
		for range time.Tick(10 * time.Second) {
			k.sweep()
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("cannot take orders: %w", err)
		}
		go k.answer(conn)
	}
}

func (k *keeper) answer(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(keepTimeout))
	var a Answer
	k.noteOrder()
	o, err := readOrder(conn)
	if err == nil {
		a, err = k.obey(o)
	}
	if err != nil {
		a.Error = err.Error()
		a.Error = a.Error[:min(len(a.Error), maxAnswer/4)]
	}
	if err := json.NewEncoder(conn).Encode(a); err != nil {
		fmt.Fprintf(k.errs, "chatd-enforce: cannot answer: %v\n", err)
	}
}

func (k *keeper) noteOrder() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ordered = time.Now()
}

// idleTime is how long nothing is kept and nobody asks before a keeper that chatd started ends.
const idleTime = 10 * time.Second

// awaitIdle returns when nobody needs this keeper any more. chatd starts another when a session
// with rules comes: it asks whether one is there just before, which counts as an order.
func (k *keeper) awaitIdle() {
	k.noteOrder()
	for idle := false; !idle; {
		time.Sleep(idleTime / 4)
		k.mu.Lock()
		idle = len(k.sessions) == 0 && time.Since(k.ordered) > idleTime
		k.mu.Unlock()
	}
}

// readOrder reads what chatd asks, strictly: a key that means nothing here may mean that
// more is to be kept.
func readOrder(r io.Reader) (Order, error) {
	var o Order
	d := json.NewDecoder(io.LimitReader(r, maxOrder))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return Order{}, fmt.Errorf("cannot read the order: %w", err)
	}
	return o, nil
}

func (k *keeper) obey(o Order) (Answer, error) {
	switch o.Verb {
	case Probe:
		return k.probe(o)
	case Hold:
		return k.hold(o)
	case Drop:
		k.drop(o.Chat)
		return Answer{}, nil
	case Why:
		return k.why(o)
	case Refused:
		return k.watch.refused.take(), nil
	}
	return Answer{}, fmt.Errorf("cannot obey %s: want hold, drop, probe, refused or why: %w", chat.Quote(o.Verb), chat.ErrInvalid)
}

// probe says whether the session of an order is kept, or without one that this is here.
func (k *keeper) probe(o Order) (Answer, error) {
	if o.Chat == "" {
		return Answer{Later: "fanotify"}, nil
	}
	s := k.named(o.Chat)
	if s == nil || s.leader != o.leader() || s.answer.Load() == nil || s.ended() {
		return Answer{}, fmt.Errorf("nobody keeps process %d of the chat: %w", o.PID, chat.ErrNotFound)
	}
	return *s.answer.Load(), nil
}

// hold raises or changes the walls of a session. After a failure of the first a session
// is forgotten; after one of a later it has the walls of both rules.
func (k *keeper) hold(o Order) (Answer, error) {
	s, known, err := k.session(o)
	if err != nil {
		return Answer{}, err
	}
	if err := k.raise(s, &o); err != nil {
		if !known {
			k.forget(s)
		}
		return Answer{}, err
	}
	return *s.answer.Load(), nil
}

// raise brings a session to the rules of an order, or looks at it again with those that
// it has: which they are is known only behind the lock. It notes what came of it.
func (k *keeper) raise(s *kept, o *Order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("nobody keeps process %d of the chat any more: %w", s.leader.pid, chat.ErrNotFound)
	}
	if o == nil {
		o = &s.order
	}
	if err := inMountNamespace(s.ns, func() error { return s.hold(*o, k.masks, k.procFD, k.watch) }); err != nil {
		return err
	}
	return k.save(s)
}

// session is the one that an order is about; another of the same chat has ended.
func (k *keeper) session(o Order) (s *kept, known bool, err error) {
	if _, err := chat.ParseID(string(o.Chat)); err != nil {
		return nil, false, err
	}
	if s = k.named(o.Chat); s != nil && s.leader == o.leader() && !s.ended() {
		return s, true, nil
	}
	if s, err = openKept(o); err != nil {
		return nil, false, err
	}
	s.bare, s.noSwap, s.trees, s.startMasks = k.bare, k.noSwap, &k.trees, startMasks(k.dir)
	for {
		k.drop(o.Chat)
		k.mu.Lock()
		free := k.sessions[o.Chat] == nil
		if free {
			k.sessions[o.Chat] = s
		}
		k.mu.Unlock()
		if free {
			return s, false, nil
		}
	}
}

// named is the session of a chat; nil if there is none.
func (k *keeper) named(id chat.ID) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions[id]
}

func (k *keeper) drop(id chat.ID) {
	if s := k.named(id); s != nil {
		k.forget(s)
	}
}

// forget lets a session go. Only when nothing of it is left may another of its chat
// take its place: what is noted is by chat.
func (k *keeper) forget(s *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	id := s.leader.chat
	k.watch.drop(id)
	s.close()
	for _, file := range []string{k.file(id), k.watch.journal(id), k.watch.lateFile(id)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(k.errs, "chatd-enforce: cannot forget a session: %v\n", err)
		}
	}
	k.mu.Lock()
	delete(k.sessions, id)
	k.mu.Unlock()
}

// sweep forgets sessions that have ended.
func (k *keeper) sweep() {
	k.mu.Lock()
	all := slices.Collect(maps.Values(k.sessions))
	k.mu.Unlock()
	for _, s := range all {
		if s.ended() {
			k.forget(s)
		}
	}
}

// askAgain has a session looked at again: something denied was made or moved in it.
// It is called under the watch's lock and does not wait.
func (k *keeper) askAgain(id chat.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked[id] {
		return
	}
	select {
	case k.again <- id:
		k.asked[id] = true
	default: // a thousand wait already; what is known keeps the file meanwhile
	}
}

// lookAgain covers what was made later, so that it is kept by a mount too. A chat that
// makes many such files gets no more of this than a part of the time.
func (k *keeper) lookAgain() {
	for id := range k.again {
		k.mu.Lock()
		delete(k.asked, id)
		s := k.sessions[id]
		k.mu.Unlock()
		if s == nil || s.ended() {
			continue
		}
		began := time.Now()
		if err := k.raise(s, nil); err != nil {
			k.end(s, err)
		}
		time.Sleep(min(5*time.Since(began), time.Second))
	}
}

// end ends a session whose rules cannot be kept any more.
func (k *keeper) end(s *kept, why error) {
	if s.ended() {
		return
	}
	fmt.Fprintf(k.errs, "chatd-enforce: ending the session of chat %s: its file rules cannot be kept: %v\n", s.leader.chat, why)
	if err := s.kill(); err != nil {
		fmt.Fprintf(k.errs, "chatd-enforce: cannot end the session of chat %s: %v\n", s.leader.chat, err)
	}
}
