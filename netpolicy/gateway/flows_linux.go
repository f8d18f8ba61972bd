package gateway

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// flowSpan is how long the kernel keeps a closed connection or a silent flow in its table of
	// tracked flows (nf_conntrack-sysctl.rst: nf_conntrack_tcp_timeout_time_wait and
	// nf_conntrack_udp_timeout_stream), flowStep how finely that is counted.
	flowSpan, flowStep = 120 * time.Second, 10 * time.Second
	flowSlots          = int64(flowSpan/flowStep) + 1
	// flowPart is the part of that table for all chats: it is the host's, and when it is full the
	// kernel drops everybody's packets. usualTracked is its size where the kernel does not tell.
	flowPart, usualTracked = 4, 1 << 16
	// ownerFlows is how many times what is left the chats of one owner may have together.
	ownerFlows = 3
)

// flows counts the sockets that chats got in the last flowSpan. Of what is left a chat that has as
// much gets no more, nor do the chats of an owner that have three times as much.
type flows struct {
	max   int // of all; 0: a part of the host's table
	now   func() time.Time
	begun time.Time

	mu      sync.Mutex
	slot    int64
	limit   int
	all     flowCount
	of      map[string]*flowCount // by chat and by owner
	refused flowCount
}

func newFlows(max int, now func() time.Time) *flows {
	return &flows{max: max, now: now, begun: now(), of: map[string]*flowCount{}}
}

// flowCount is a number for each step of the last flowSpan.
type flowCount struct {
	slots [flowSlots]int
	sum   int
	last  int64
}

// at forgets what is older than flowSpan, and returns the rest.
func (c *flowCount) at(slot int64) int {
	for ; c.last < slot && c.sum > 0; c.last++ {
		i := (c.last + 1) % flowSlots
		c.sum -= c.slots[i]
		c.slots[i] = 0
	}
	c.last = slot
	return c.sum
}

func (c *flowCount) add() {
	c.slots[c.last%flowSlots]++
	c.sum++
}

// take counts one more socket of a chat, or says why it gets none.
func (f *flows) take(id chat.ID, owner string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn()
	c, o := f.count("chat "+string(id)), f.count("owner "+owner)
	left := f.limit - f.all.at(f.slot)
	if c.sum >= left || o.sum >= ownerFlows*left {
		f.refused.at(f.slot)
		f.refused.add()
		return fmt.Errorf("cannot begin another connection: the chat began %d in %v, and others "+
			"want their part of the host's table: %w", c.sum, flowSpan, chat.ErrBusy)
	}
	for _, of := range []*flowCount{c, o, &f.all} {
		of.add()
	}
	return nil
}

// turn begins a step, in which the counts of those that have none are forgotten.
func (f *flows) turn() {
	slot := int64(f.now().Sub(f.begun)/flowStep) + 1
	if slot == f.slot {
		return
	}
	f.slot, f.limit = slot, f.max
	if f.max == 0 {
		f.limit = tracked() / flowPart
	}
	for key, c := range f.of {
		if c.at(slot) == 0 {
			delete(f.of, key)
		}
	}
}

func (f *flows) count(key string) *flowCount {
	c := f.of[key]
	if c == nil {
		c = &flowCount{}
		f.of[key] = c
	}
	c.at(f.slot)
	return c
}

// tracked is the size of the host's table.
func tracked() int {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if n, nerr := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && nerr == nil && n > 0 {
		return n
	}
	return usualTracked
}

// Flows says how many connections and flows chats began of late, and how many they may.
func (g *Gateway) Flows() string {
	f := g.flows
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn()
	said := fmt.Sprintf("chats began %d of at most %d connections in %v", f.all.at(f.slot),
		f.limit, flowSpan)
	if n := f.refused.at(f.slot); n > 0 {
		said += fmt.Sprintf("; %d more were refused", n)
	}
	return said
}
