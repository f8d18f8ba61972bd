package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestBudget: a chat gets half of what is there, the chats of an owner three quarters, and whoever
// has nothing gets something while there is any.
func TestBudget(t *testing.T) {
	const all = 1024
	var b budget
	b.left = all
	var owners [3]share
	got := func(owner *share, chat *share) (n int) {
		for {
			if ok, _ := b.take(1, chat, owner, 0); !ok {
				return n
			}
			n++
		}
	}
	n := got(&owners[0], &share{})
	expect.True(t, n == all/2, "the first chat got %d of %d", n, all)
	for range 100 {
		got(&owners[0], &share{})
	}
	if n := owners[0].held; n < all*3/4-3 || n > all*3/4+3 {
		t.Errorf("the first owner got %d of %d", n, all)
	}
	for i := range owners[1:] {
		for range 100 {
			got(&owners[1+i], &share{})
		}
		expect.True(t, owners[1+i].held != 0, "owner %d got nothing", 1+i)
	}
}

// TestBudgetReturns: what is given back is there again, in any order.
func TestBudgetReturns(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var b budget
		b.left = 64
		var chats [4]share
		var owners [2]share
		var taken []int
		for range 200 {
			i := random.IntN(len(chats))
			if random.IntN(2) == 0 {
				if ok, _ := b.take(int64(1+i), &chats[i], &owners[i/2], 2); ok {
					taken = append(taken, i)
				}
			} else if len(taken) > 0 {
				i, taken = taken[0], taken[1:]
				b.give(int64(1+i), &chats[i], &owners[i/2])
			}
			must.True(t, b.left >= 0, "seed %d: %d are left", seed, b.left)
		}
		for _, i := range taken {
			b.give(int64(1+i), &chats[i], &owners[i/2])
		}
		must.True(t, b.left == 64 && owners[0].held+owners[1].held == 0,
			"seed %d: %d are left", seed, b.left)
	}
}

// TestFirstOfEachChat: every chat of an owner gets its first, whatever others of the owner hold.
func TestFirstOfEachChat(t *testing.T) {
	const all = 200
	b := budget{left: all, first: 1}
	var owner share
	for i := range 40 {
		var chat share
		for {
			if ok, _ := b.take(1, &chat, &owner, 40); !ok || chat.held == 64 {
				break
			}
		}
		expect.True(t, chat.held != 0, "chat %d got nothing, %d are left", i, b.left)
	}
	expect.True(t, b.left >= all/4-4, "%d are left for other owners", b.left)
}

// TestOwners: chats of one owner share, and an owner without chats is forgotten.
func TestOwners(t *testing.T) {
	w := newWorld(t)
	server := listenTCP(t, echo)
	open := func(c uplink.Call) *network {
		c.Verb, c.Allow = uplink.Open, list(t, server.String())
		w.call(c, w.files()...)
		return w.s.network(c.Chat)
	}
	a, b := open(uplink.Call{Chat: one, Owner: "ada"}), open(uplink.Call{Chat: two, Owner: "ada"})
	w.s.slots.left = 5
	for range 2 {
		wantEcho(t, w.dial(a, server), "x")
		wantEcho(t, w.dial(b, server), "x")
	}
	wantReset(t, w.dial(b, server)) // 4 of the owner, and 1 left
	w.event(Refused, "too many")
	w.call(uplink.Call{Verb: uplink.Close, Chat: one})
	w.call(uplink.Call{Verb: uplink.Close, Chat: two})
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	expect.True(t, len(w.s.owners) == 0 && w.s.slots.left == 5,
		"%d owners, %d left", len(w.s.owners), w.s.slots.left)
}

// TestBuffers: of a chat with many connections the first have buffers that the kernel lets grow, and
// each further one has small ones. One that ends makes room; another chat has its own.
func TestBuffers(t *testing.T) {
	w := newWorld(t)
	kept := make(chan int, 1)
	w.root.made = func(fd int) { kept <- duplicate(t, fd) }
	server := listenTCP(t, echo)
	n := w.open(one, server.String())
	var all []*net.TCPConn
	narrow := func(n *network, want bool) {
		t.Helper()
		c := w.dial(n, server)
		wantEcho(t, c, "x")
		expect.Equal(t, isNarrow(t, <-kept), want, "connection %d has small buffers", len(all)+1)
		all = append(all, c)
	}
	for i := range wideServers + 3 {
		narrow(n, i >= wideServers)
	}
	narrow(w.open(two, server.String()), false)
	for _, c := range all[:4] {
		c.Close()
		w.event(Allowed, "")
	}
	narrow(n, false) // 8 with it
	narrow(n, true)
}

func duplicate(t *testing.T, fd int) int {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	expect.NoError(t, err)
	return d
}

// isNarrow reports whether a socket's buffers are those of one that was bounded. It closes fd.
func isNarrow(t *testing.T, fd int) bool {
	t.Helper()
	other, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	same := true
	for _, buffer := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF} {
		err1 := unix.SetsockoptInt(other, unix.SOL_SOCKET, buffer, narrowBuffer)
		want, err2 := unix.GetsockoptInt(other, unix.SOL_SOCKET, buffer)
		got, err3 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, buffer)
		err = errors.Join(err, err1, err2, err3)
		same = same && got == want
	}
	if err = errors.Join(err, unix.Close(other), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return same
}

// TestAwakeMemory: 500 awake chats, each with a name that it has asked for and an idle connection,
// cost chatd-egress at most 60 MB. The clients and servers of the test are in the figure.
func TestAwakeMemory(t *testing.T) {
	const chats, most = 500, 60 << 20
	w := newWorld(t)
	server := listenTCP(t, echo)
	w.dns.set("api.example.org", server.Addr().String())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*net.TCPConn
	for i := range chats {
		id := chat.ID(fmt.Sprintf("%016x", i))
		n := w.open(id, fmt.Sprintf("api.example.org:%d", server.Port()), server.String())
		c := w.dial(n, w.named(n, "api.example.org", server.Port()))
		wantEcho(t, c, "\x00")
		all = append(all, c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	got := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	t.Logf("%d chats take %d KiB, %d each", chats, got>>10, got/chats>>10)
	expect.True(t, got <= most, "%d chats take %d MiB, want at most %d", chats, got>>20, most>>20)
}

// ofOwner opens one more chat of an owner, with the secret.
func (w *secretWorld) ofOwner(i int) *network {
	id := chat.ID(fmt.Sprintf("%016d", i))
	w.call(uplink.Call{Verb: uplink.Open, Chat: id, Owner: "bridge", Allow: w.n.allowed(),
		Grants: []secret.Grant{{Name: "api", Placeholder: placeholder}}}, w.files()...)
	return w.s.network(id)
}

// slowWorld is a world with a model that says a word of an answer, and the rest when it is asked to.
func slowWorld(t testing.TB) (w *secretWorld, finish chan struct{}) {
	finish = make(chan struct{})
	w = newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: hello\n\n")
		_ = http.NewResponseController(w).Flush()
		<-finish
	})
	return w, finish
}

// ask begins an answer of the model.
func (w *secretWorld) ask(c *http.Client, n *network) *http.Response {
	w.t.Helper()
	w.n = n
	a := must.Get(c.Do(w.request("POST", "/", nil)))(w.t)
	w.t.Cleanup(func() { _ = a.Body.Close() })
	if a.StatusCode == http.StatusOK {
		line, err := bufio.NewReader(a.Body).ReadString('\n')
		must.True(w.t, line == "data: hello\n" && err == nil, "%q, %v", line, err)
	}
	return a
}

// TestFourthChat: a chat gets its connection to a slow model though three others of its owner hold
// all that they can get. A request over the bound waits, and gets 503, not a reset.
func TestFourthChat(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w, finish := slowWorld(t)
		defer close(finish)
		var chats []*network
		for i := range 4 {
			chats = append(chats, w.ofOwner(i))
		}
		costs := &w.s.web.costs
		costs.mu.Lock()
		costs.left = 16 * streamsCost
		costs.mu.Unlock()
		defer func(was time.Duration) { enterTimeout = was }(enterTimeout)
		enterTimeout = 50 * time.Millisecond
		for i, n := range chats[:3] {
			begun := 0
			for ; begun < maxSessions; begun++ {
				a := w.ask(w.client(http2), n)
				if a.StatusCode == http.StatusOK {
					continue
				}
				if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
					t.Errorf("what is over: %s %v", a.Status, a.Header)
				}
				break
			}
			expect.True(t, begun != 0 && begun != maxSessions, "chat %d began %d answers", i, begun)
		}
		if a := w.ask(w.client(http2), chats[3]); a.StatusCode != http.StatusOK {
			t.Errorf("the fourth chat: %s", a.Status)
		}
	})
}

// TestWaitsForEnd: what was kept for the first connection of a chat goes to others of its owner when
// it is closed, though it held nothing.
func TestWaitsForEnd(t *testing.T) {
	w, finish := slowWorld(t)
	defer close(finish)
	n, idle := w.ofOwner(0), w.ofOwner(1)
	costs := &w.s.web.costs
	costs.mu.Lock()
	costs.left = 3*streamsCost + streamsCost/2
	costs.mu.Unlock()
	w.ask(w.client(true), n)
	w.n = n
	c, r := w.client(true), w.request("POST", "/", nil)
	begun := make(chan int, 1)
	go func() {
		a, err := c.Do(r)
		if err != nil {
			begun <- 0
			return
		}
		defer a.Body.Close()
		begun <- a.StatusCode
	}()
	for { // until it waits
		costs.mu.Lock()
		waits := costs.freed != nil
		costs.mu.Unlock()
		if waits {
			break
		}
		time.Sleep(time.Millisecond)
	}
	w.call(uplink.Call{Verb: uplink.Close, Chat: idle.id})
	select {
	case code := <-begun:
		expect.Equal(t, code, http.StatusOK, "it got")
	case <-time.After(guard):
		t.Error("it still waits")
	}
}

// TestRests: a connection costs what its requests do only while it has some.
func TestRests(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w, finish := slowWorld(t)
		c := w.client(http2)
		a := w.ask(c, w.n)
		want := int64(activeCost)
		if http2 {
			want = streamsCost
		}
		got := w.held()
		expect.True(t, got == want, "%d while a request is answered", got)
		close(finish)
		_, _ = io.Copy(io.Discard, a.Body)
		waitUntil(t, func() bool { return w.held() == idleCost })
		c.CloseIdleConnections()
		waitUntil(t, func() bool { return w.held() == 0 })
	})
}

// held is what the chat's connections cost.
func (w *secretWorld) held() int64 {
	w.s.web.costs.mu.Lock()
	defer w.s.web.costs.mu.Unlock()
	return w.n.web.held
}

func waitUntil(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(guard); !is(); time.Sleep(time.Millisecond) {
		must.True(t, !time.Now().After(end), "it is never so")
	}
}
