package egress

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/secret"
	"github.com/chatd/chatd/uplink"
)

// TestFourthChat: a chat gets its connection to a model though three others of its owner hold all
// that they can get. What is over waits, and is answered 503 and not reset.
func TestFourthChat(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w := newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
		var chats []*network
		for i := range 4 {
			id := chat.ID(fmt.Sprintf("%016d", i))
			w.call(uplink.Call{Verb: uplink.Open, Chat: id, Owner: "bridge",
				Allow:  w.n.allowed(),
				Grants: []secret.Grant{{Name: "api", Placeholder: placeholder}}}, w.files()...)
			w.s.mu.Lock()
			chats = append(chats, w.s.networks[id])
			w.s.mu.Unlock()
		}
		costs := &w.s.web.costs
		held := [3]int64{}
		for i, n := range chats[:3] {
			for held[i] < maxSessions {
				if ok, _ := costs.take(secureCost, &n.web, &n.owner.web, 4); !ok {
					break
				}
				held[i]++
			}
		}
		w.n = chats[3]
		if a, body := w.do(w.client(http2), w.request("GET", "/", nil)); body != "hello" {
			t.Errorf("the fourth chat: %d %q", a.StatusCode, body)
		}
		enterTimeout = 10 * time.Millisecond
		defer func() { enterTimeout = headerTimeout }()
		w.n = chats[2]
		a, _ := w.do(w.client(false), w.request("GET", "/", nil))
		if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			t.Errorf("what is over: %s %v", a.Status, a.Header)
		}
		for i, n := range chats[:3] {
			costs.give(secureCost*held[i], &n.web, &n.owner.web)
		}
	})
}
