package egress

import (
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/uplink"
)

// spared waits until no spare of a chat is being made, and returns whether there is one.
func (w *world) spared(n *network) bool {
	w.t.Helper()
	for deadline := time.Now().Add(guard); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.spare.mu.Lock()
		making, has := n.spare.making, n.spare.file != nil
		n.spare.mu.Unlock()
		if !making {
			return has
		}
	}
	w.t.Fatal("a spare is made for ever")
	return false
}

// asked returns the chats for which sockets were asked for.
func (r *fakeRoot) asked() (ids []chat.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.sockets {
		if c.Verb == uplink.Socket {
			ids = append(ids, c.Chat)
		}
	}
	return ids
}

// TestSpare: the second connection of a chat takes the socket that was asked for after the first,
// also while there is no chatd-root. None is left when the chat's network has ended.
func TestSpare(t *testing.T) {
	server := listenTCP(t, echo)
	w := newWorld(t)
	n := w.open(one, server.String())
	wantEcho(t, w.dial(n, server), "first")
	if !w.spared(n) || !slices.Equal(w.root.asked(), []chat.ID{one, one}) {
		t.Fatalf("asked for %q", w.root.asked())
	}
	w.root.end()
	wantEcho(t, w.dial(n, server), "second")
	w.root = w.newRoot() // the next spare waited for it
	if !w.spared(n) || !slices.Equal(w.root.asked(), []chat.ID{one}) {
		t.Errorf("asked for %q", w.root.asked())
	}
	if err := w.s.close(one); err != nil || n.spare.file != nil || w.s.spares.Load() != 0 {
		t.Errorf("%d spares are left, %v", w.s.spares.Load(), err)
	}
}

// TestSpareIsOwn: a chat has its own spare and no other's.
func TestSpareIsOwn(t *testing.T) {
	server := listenTCP(t, echo)
	w := newWorld(t)
	n1, n2 := w.open(one, server.String()), w.open(two, server.String())
	wantEcho(t, w.dial(n1, server), "first")
	if !w.spared(n1) || w.spared(n2) {
		t.Fatal("the second chat has a spare, or the first none")
	}
	wantEcho(t, w.dial(n2, server), "second")
	if !w.spared(n2) || !slices.Equal(w.root.asked(), []chat.ID{one, one, two, two}) {
		t.Errorf("asked for %q", w.root.asked())
	}
}

// TestSpareEnds: a spare ends with the list under which it was made, when it was not needed for
// two sweeps, and where the next one is of the other family.
func TestSpareEnds(t *testing.T) {
	server := listenTCP(t, echo)
	w := newWorld(t)
	n := w.open(one, server.String())
	begin := func() {
		t.Helper()
		wantEcho(t, w.dial(n, server), "x")
		if !w.spared(n) || w.s.spares.Load() != 1 {
			t.Fatal("there is no spare")
		}
	}
	begin()
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: list(t, server.String())})
	if w.spared(n) || w.s.spares.Load() != 0 {
		t.Error("there is one of an earlier list")
	}
	for range 2 {
		begin()
		w.s.sweep(time.Now())
		if !w.spared(n) {
			t.Error("the first sweep has closed it")
		}
	}
	w.s.sweep(time.Now())
	if w.spared(n) || w.s.spares.Load() != 0 {
		t.Error("two sweeps have left it")
	}
	begin()
	if f := n.takeSpare(true); f != nil {
		t.Error("it is taken for IPv6")
	}
	n.all.Add(1)
	n.prepare(true)
	n.all.Done()
	if !w.spared(n) || w.s.spares.Load() != 1 || n.takeSpare(false) != nil {
		t.Error("there is none for IPv6")
	}
}

// TestSpareIsLate: a spare for which chatd-root was asked before the list changed is not kept.
func TestSpareIsLate(t *testing.T) {
	server := listenTCP(t, echo)
	w := newWorld(t)
	n := w.open(one, server.String())
	wantEcho(t, w.dial(n, server), "x")
	if !w.spared(n) {
		t.Fatal("there is no spare")
	}
	w.root.end()
	wantEcho(t, w.dial(n, server), "x") // the next spare waits for a chatd-root
	if err := w.s.change(one, list(t, server.String())); err != nil {
		t.Fatal(err)
	}
	w.root = w.newRoot()
	if w.spared(n) || w.s.spares.Load() != 0 {
		t.Error("there is one of an earlier list")
	}
}

// TestSparesAreBounded: what all chats have of them.
func TestSparesAreBounded(t *testing.T) {
	server := listenTCP(t, echo)
	w := newWorld(t)
	n := w.open(one, server.String())
	w.s.spares.Store(maxSpares)
	wantEcho(t, w.dial(n, server), "x")
	if w.spared(n) || w.s.spares.Load() != maxSpares {
		t.Errorf("there is one more than %d", maxSpares)
	}
}
