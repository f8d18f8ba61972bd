package egress

import (
	"math/rand/v2"
	"testing"

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
	if n := got(&owners[0], &share{}); n != all/2 {
		t.Errorf("the first chat got %d of %d", n, all)
	}
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
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return w.s.networks[c.Chat]
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
	if len(w.s.owners) != 0 || w.s.slots.left != 5 {
		t.Errorf("%d owners, %d left", len(w.s.owners), w.s.slots.left)
	}
}
