package egress

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// ofOwner opens one more chat of an owner, with the secret.
func (w *secretWorld) ofOwner(i int) *network {
	id := chat.ID(fmt.Sprintf("%016d", i))
	w.call(uplink.Call{Verb: uplink.Open, Chat: id, Owner: "bridge", Allow: w.n.allowed(),
		Grants: []secret.Grant{{Name: "api", Placeholder: placeholder}}}, w.files()...)
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.networks[id]
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
		if got := w.held(); got != want {
			t.Errorf("%d while a request is answered", got)
		}
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
